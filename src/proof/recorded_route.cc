// SPDX-License-Identifier: Apache-2.0
#include "proof/recorded_route.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace trivet::proof {

std::string Bits(float value) { return fmt::format("{:08x}", std::bit_cast<uint32_t>(value)); }

RecordedRoute FindRoute(const RankRun& rank, const Decision& decision) {
  const auto& heads = rank.routes.heads;
  const auto at =
      std::lower_bound(heads.begin(), heads.end(), decision, [](const record::RouteHead& head, const Decision& wanted) {
        return Decision{head.layer, head.token} < wanted;
      });
  if (at == heads.end() || Decision{at->layer, at->token} != decision) return {};
  return {&*at, rank.routes.Slots(static_cast<size_t>(at - heads.begin()))};
}

RecordedRoute FindRoute(const RecordedRun& run, const Decision& decision) {
  for (const RankRun& rank : run.ranks) {
    const RecordedRoute found = FindRoute(rank, decision);
    if (found.head != nullptr) return found;
  }
  return {};
}

void DescribeRoutes(const RecordedRoute& a, const RecordedRoute& b, Json* where, std::string* text) {
  if (a.head == nullptr || b.head == nullptr) return;
  for (size_t i = 0; i < std::min(a.slots.size(), b.slots.size()); ++i) {
    const record::RouteSlot &x = a.slots[i], &y = b.slots[i];
    const bool same = x.expert == y.expert && Bits(x.weight) == Bits(y.weight) && Bits(x.score) == Bits(y.score) &&
                      Bits(x.selection) == Bits(y.selection);
    if (same) continue;
    where->update({{"slot", i},
                   {"experts", {x.expert, y.expert}},
                   {"weights", {Bits(x.weight), Bits(y.weight)}},
                   {"scores", {Bits(x.score), Bits(y.score)}},
                   {"selections", {Bits(x.selection), Bits(y.selection)}}});
    *text += fmt::format("; slot {}: expert {} with weight {} against expert {} with weight {}", i, x.expert,
                         Bits(x.weight), y.expert, Bits(y.weight));
    break;
  }
  const double margin_a = static_cast<double>(a.slots.back().selection) - static_cast<double>(a.head->next);
  const double margin_b = static_cast<double>(b.slots.back().selection) - static_cast<double>(b.head->next);
  const double moved = std::fabs(static_cast<double>(a.slots.back().selection - b.slots.back().selection)) +
                       std::fabs(static_cast<double>(a.head->next - b.head->next));
  where->update({{"margins", {margin_a, margin_b}}, {"near_tie", std::min(margin_a, margin_b) <= moved}});
  *text += fmt::format("; the last choice was ahead by {:.3g} and {:.3g}", margin_a, margin_b);
}

}  // namespace trivet::proof
