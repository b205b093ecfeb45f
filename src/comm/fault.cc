// SPDX-License-Identifier: Apache-2.0
#include "comm/fault.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <set>

#include "base/str.h"

namespace trivet::comm {
namespace {

// Which of a fault's numbers, besides the rank, a kind of it takes.
enum class Takes { kRankAlone, kSite, kStep };

struct KindRow {
  const char* name;
  FaultKind kind;
  Takes takes = Takes::kRankAlone;
};
constexpr KindRow kKinds[] = {{"partial-bf16", FaultKind::kPartialBF16, Takes::kSite},
                              {"rank-order", FaultKind::kRankOrder},
                              {"split-k", FaultKind::kSplitK},
                              {"local-scale", FaultKind::kLocalScale, Takes::kSite},
                              {"fallback", FaultKind::kFallback},
                              {"hand-bf16", FaultKind::kHandBF16},
                              {"wrong-slot", FaultKind::kWrongSlot, Takes::kSite},
                              {"weight-bit", FaultKind::kWeightBit, Takes::kSite},
                              {"router-ulp", FaultKind::kRouterUlp, Takes::kSite},
                              {"local-topk", FaultKind::kLocalTopK, Takes::kSite},
                              {"combine-order", FaultKind::kCombineOrder, Takes::kSite},
                              {"split-kv", FaultKind::kSplitKV, Takes::kSite},
                              {"moved-map", FaultKind::kMovedMap, Takes::kSite},
                              {"other-split", FaultKind::kOtherSplit},
                              {"sp-first", FaultKind::kSpFirst},
                              {"other-replica", FaultKind::kOtherReplica},
                              {"die", FaultKind::kDie, Takes::kStep},
                              {"hang", FaultKind::kHang, Takes::kStep}};

}  // namespace

bool OnProcessorAlone(FaultKind kind) {
  return kind == FaultKind::kLocalTopK || kind == FaultKind::kCombineOrder || kind == FaultKind::kSplitKV ||
         kind == FaultKind::kMovedMap;
}

float RoundedToBF16(float value) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x8000U) & 0xFFFF0000U);
}

Result<Fault> ParseFault(const std::string& text) {
  std::vector<std::string_view> names;
  for (const KindRow& row : kKinds) names.emplace_back(row.name);
  const Error bad = MakeError(
      Code::kUsage,
      fmt::format("--fault: expected {}, with :rank=R, :site=N or :step=N behind it, found \"{}\"; correct it",
                  fmt::join(names, ", "), Quote(text)));
  const std::vector<std::string> parts = Split(text, ':');
  const auto* row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](const KindRow& one) { return !parts.empty() && parts[0] == one.name; });
  if (row == std::end(kKinds)) return bad;
  Fault fault;
  fault.kind = row->kind;
  std::set<std::string> given;
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::vector<std::string> pair = Split(parts[i], '=');
    if (pair.size() != 2 || !given.insert(pair[0]).second) return bad;
    const Result<int64_t> number = ParseInt(pair[1], "--fault");
    if (!number.ok() || *number < 0) return bad;
    if (pair[0] == "rank") {
      fault.rank = *number;
    } else if (pair[0] == "site" && row->takes == Takes::kSite) {
      fault.site = *number;
    } else if (pair[0] == "step" && row->takes == Takes::kStep) {
      fault.step = *number;
    } else if (pair[0] == "site" || pair[0] == "step") {
      return MakeError(Code::kUsage,
                       fmt::format("--fault: expected {} without a {}, which it does not have, found \"{}\"; "
                                   "leave it out",
                                   row->name, pair[0], Quote(text)));
    } else {
      return bad;
    }
  }
  return fault;
}

}  // namespace trivet::comm
