// SPDX-License-Identifier: Apache-2.0
#include "proof/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "proof/collectives.h"
#include "proof/gates.h"
#include "proof/recorded_route.h"

namespace trivet::proof {
namespace {

using record::BoundRecord;
using record::DecisionRecord;
using record::Site;

// One thing that can be compared: a digest at a place.
struct Item {
  Place place;
  Digest digest;
  uint32_t values = 0;
};

// The first position of a request that is not compared: where the two sides sampled different tokens.
using Limits = std::map<int64_t, int64_t>;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

bool Inside(const Limits& limits, int64_t token) {
  const auto limit = limits.find(record::RequestOf(token));
  return limit == limits.end() || record::PositionOf(token) < limit->second;
}

// All places of a run, each once: copies have been found to agree.
std::vector<Item> ItemsOf(const RecordedRun& run, const Limits& limits) {
  std::vector<Item> items;
  for (const RankRun& rank : run.ranks) {
    for (const DecisionRecord& one : rank.decisions) {
      if (one.token == record::kPadding || !Inside(limits, one.token)) continue;
      items.push_back({{one.layer, static_cast<int>(Site::kRoute), one.token}, one.digest, 0});
    }
    for (const BoundRecord& one : rank.bounds) {
      if (one.token == record::kPadding || !Inside(limits, one.token)) continue;
      items.push_back({{one.layer, static_cast<int>(one.site), one.token}, one.digest, one.values});
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& x, const Item& y) { return x.place < y.place; });
  const auto same = [](const Item& x, const Item& y) { return x.place == y.place; };
  items.erase(std::unique(items.begin(), items.end(), same), items.end());
  return items;
}

const Json* RequestOf(const RecordedRun& run, int64_t request) {
  for (const Json& one : Member(run.run, "requests")) {
    if (Member(one, "request") == request) return &one;
  }
  return nullptr;
}

std::vector<Json> TokensOf(const Json& request) {
  std::vector<Json> tokens;
  for (const char* part : {"prompt", "sampled"}) {
    for (const Json& token : Member(request, part)) tokens.push_back(token);
  }
  return tokens;
}

Gate CheckIdentity(const RecordedRun& a, const RecordedRun& b) {
  const auto differs = [](const std::string& what, const Json& x, const Json& y) {
    return Found(Verdict::kIdentityDrift,
                 fmt::format("{}: {} against {}; the runs are not of the same work", what, DumpJson(x).substr(0, 100),
                             DumpJson(y).substr(0, 100)),
                 {{"what", what}});
  };
  for (const char* key : {"identity", "router", "layers", "hidden", "vocab"}) {
    const Json &x = Member(a.run, key), &y = Member(b.run, key);
    if (x == y) continue;
    for (const auto& [name, value] : x.items()) {
      if (x.is_object() && Member(y, name) != value) return differs(name, value, Member(y, name));
    }
    return differs(key, x, y);
  }
  if (a.tokens.requests.size() != b.tokens.requests.size()) {
    return differs("requests", a.tokens.requests.size(), b.tokens.requests.size());
  }
  for (const RequestFacts& request : a.tokens.requests) {
    const Json *x = RequestOf(a, request.request), *y = RequestOf(b, request.request);
    const std::string name = fmt::format("request {}", request.request);
    if (y == nullptr) return differs(name, *x, nullptr);
    // A replay is given the tokens that the other run sampled.
    const std::vector<Json> all_x = TokensOf(*x), all_y = TokensOf(*y);
    const size_t prompt = std::min(Member(*x, "prompt").size(), Member(*y, "prompt").size());
    for (size_t i = 0; i < prompt; ++i) {
      if (all_x[i] != all_y[i]) return differs(fmt::format("{}, token {}", name, i), all_x[i], all_y[i]);
    }
  }
  return std::nullopt;
}

// Where the sides sampled different tokens.
Limits Divergences(const RecordedRun& a, const RecordedRun& b) {
  Limits limits;
  for (const RequestFacts& request : a.tokens.requests) {
    const std::vector<Json> x = TokensOf(*RequestOf(a, request.request)), y = TokensOf(*RequestOf(b, request.request));
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (x[i] == y[i]) continue;
      limits[request.request] = static_cast<int64_t>(i);
      break;
    }
  }
  return limits;
}

std::vector<std::string> ChangedDimensions(const RecordedRun& a, const RecordedRun& b) {
  std::vector<std::string> changed;
  for (size_t d = 0; d < kDimensions; ++d) {
    if (a.tokens.sizes[d] != b.tokens.sizes[d]) changed.emplace_back(DimensionName(static_cast<Dimension>(d)));
  }
  if (a.tokens.sp != b.tokens.sp) changed.emplace_back("sp");
  // How sequences are cut says nothing where nobody cuts them.
  const auto cp = static_cast<size_t>(Dimension::kCp);
  const bool cut = a.tokens.sizes[cp] > 1 && b.tokens.sizes[cp] > 1;
  if (cut && a.tokens.zigzag != b.tokens.zigzag) changed.emplace_back("cp_layout");
  if (cut && a.tokens.cp_stretch != b.tokens.cp_stretch) changed.emplace_back("cp_stretch");
  return changed;
}

// The first vocabulary id whose logit differs, where logits are recorded.
void DescribeLogits(const RecordedRun& a, const RecordedRun& b, int64_t token, Json* where, std::string* text) {
  const auto x = a.logits.find(token), y = b.logits.find(token);
  if (x == a.logits.end() || y == b.logits.end()) return;
  for (size_t id = 0; id < std::min(x->second.size(), y->second.size()); ++id) {
    const std::string p = Bits(x->second[id]), q = Bits(y->second[id]);
    if (p == q) continue;
    where->update({{"id", id}, {"logits", {p, q}}});
    *text += fmt::format("; id {}: {} against {}", id, p, q);
    return;
  }
}

Json RanksHolding(const RecordedRun& run, const Place& place) {
  const auto [layer, site, token] = place;
  Json ranks = Json::array();
  for (const int64_t rank : run.tokens.Carriers({layer, token})) ranks.push_back(rank);
  return ranks;
}

// A record of a sum in words: where it is, how it was made and where a value was rounded.
std::string SumText(const Json& record) {
  if (!record.is_object()) return "";
  const auto word = [&](const char* field) {
    const Json& value = Member(record, field);
    return value.is_string() ? value.get<std::string>() : DumpJson(value);
  };
  const std::string at = fmt::format("layer {} {}, ", word("layer"), word("site"));
  if (word("kind") == "none") return at + "none in a group of one";
  return at + fmt::format("{} of {} by {} ranks, order: {}, sum in {}, rounded: {}", word("actual"), word("payload"),
                          Member(record, "ranks").size(), word("order"), word("accumulate"), word("round_at"));
}

Finding Differs(const RecordedRun& a, const RecordedRun& b, const Item& x, const Item& y,
                const std::vector<std::string>& dimensions) {
  const auto [layer, number, token] = x.place;
  const auto site = static_cast<Site>(number);
  Json where = PlaceJson(layer, site, token);
  std::string text =
      fmt::format("{}, {}: {} against {}", PlaceName(a, layer, site), TokenName(token), Hex(x.digest), Hex(y.digest));
  where.update({{"a", Hex(x.digest)},
                {"b", Hex(y.digest)},
                {"ranks", {{"a", RanksHolding(a, x.place)}, {"b", RanksHolding(b, y.place)}}},
                {"dimensions", dimensions},
                // All places before this one agree, at every token.
                {"classification", "origin"},
                {"reduction", {{"a", ReductionBefore(a, layer, site)}, {"b", ReductionBefore(b, layer, site)}}}});
  Verdict verdict = Verdict::kBoundaryDigestMismatch;
  if (site == Site::kRoute) {
    verdict = Verdict::kRouteSemanticFingerprintMismatch;
    DescribeRoutes(FindRoute(a, {layer, token}), FindRoute(b, {layer, token}), &where, &text);
  } else if (site == Site::kLogits) {
    verdict = Verdict::kLogitsBytesMismatch;
    DescribeLogits(a, b, token, &where, &text);
  }
  if (!dimensions.empty()) text += fmt::format("; the layouts differ along {}", fmt::join(dimensions, " and "));
  const std::string of_a = SumText(where["reduction"]["a"]), of_b = SumText(where["reduction"]["b"]);
  if (!of_a.empty() && !of_b.empty()) {
    text += "; the last sum before it: " + of_a + (of_a == of_b ? " in both" : ", against " + of_b);
  }
  return Found(verdict, std::move(text), std::move(where));
}

Finding OnlyOneHas(const RecordedRun& run, const Item& item, Verdict verdict, const char* text) {
  const auto [layer, site, token] = item.place;
  return Found(verdict,
               fmt::format("{}, {}: {}", PlaceName(run, layer, static_cast<Site>(site)), TokenName(token), text),
               PlaceJson(layer, static_cast<Site>(site), token));
}

// The first item of `items` that `among` does not have; both are sorted.
const Item* FirstOnly(const std::vector<Item>& items, const std::vector<Item>& among) {
  auto other = among.begin();
  for (const Item& item : items) {
    while (other != among.end() && other->place < item.place) ++other;
    if (other == among.end() || other->place != item.place) return &item;
  }
  return nullptr;
}

// Items that both have, in order; the first that differs is the earliest of all.
Gate CompareItems(const RecordedRun& a, const RecordedRun& b, const Limits& limits, Comparison* out) {
  const std::vector<Item> x = ItemsOf(a, limits), y = ItemsOf(b, limits);
  if (const Item* item = FirstOnly(x, y)) {
    return OnlyOneHas(a, *item, Verdict::kIncompleteArtifact, "the second run lacks it");
  }
  if (const Item* item = FirstOnly(y, x)) {
    return OnlyOneHas(b, *item, Verdict::kAmbiguousGlobalTokenMapping, "only the second run has it");
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i].digest != y[i].digest || x[i].values != y[i].values) return Differs(a, b, x[i], y[i], out->dimensions);
    const auto site = static_cast<Site>(std::get<1>(x[i].place));
    out->decisions += site == Site::kRoute;
    out->logits_rows += site == Site::kLogits;
    out->bounds += site != Site::kRoute && site != Site::kLogits;
    if (site == Site::kLogits) out->logits_bytes += int64_t{x[i].values} * static_cast<int64_t>(sizeof(float));
  }
  return std::nullopt;
}

Gate CompareReductions(const RecordedRun& a, const RecordedRun& b, const CompareOptions& options, Comparison* out) {
  const std::vector<ReductionDelta> deltas = DescribeReductions(a, b);
  out->reductions = static_cast<int64_t>(deltas.size());
  if (!options.same_reduction || deltas.empty()) return std::nullopt;
  const ReductionDelta& first = deltas[0];
  return Found(Verdict::kReductionOrderMismatch,
               fmt::format("layer {} {}: {} {} against {}", first.layer, first.site, first.field, DumpJson(first.a),
                           DumpJson(first.b)),
               {{"layer", first.layer}, {"site", first.site}, {"field", first.field}, {"a", first.a}, {"b", first.b}});
}

}  // namespace

Comparison Compare(const RecordedRun& a, const RecordedRun& b, const CompareOptions& options) {
  Comparison out;
  out.gate = CheckIdentity(a, b);
  if (out.gate) return out;
  out.dimensions = ChangedDimensions(a, b);
  out.gate = CompareReductions(a, b, options, &out);
  if (out.gate) return out;
  const Limits limits = Divergences(a, b);
  out.gate = CompareItems(a, b, limits, &out);
  if (out.gate || limits.empty()) return out;
  const auto [request, position] = *limits.begin();
  out.gate = Found(Verdict::kSampledTokenDiverged,
                   fmt::format("request {}, position {}: the runs sampled different tokens, and everything before is "
                               "equal",
                               request, position),
                   {{"request", request}, {"position", position}});
  return out;
}

std::string Grade(const RecordedRun& a, const RecordedRun& b) {
  if (a.level < record::Level::kRows || b.level < record::Level::kRows) return "";
  constexpr const char* kGrades[] = {"bits", "ids and order", "ids", "different"};
  size_t grade = 0;
  for (const RankRun& rank : a.ranks) {
    for (size_t i = 0; i < rank.routes.heads.size(); ++i) {
      const record::RouteHead& head = rank.routes.heads[i];
      const RecordedRoute other = FindRoute(b, {head.layer, head.token});
      if (other.head == nullptr) continue;
      const std::span<const record::RouteSlot> slots = rank.routes.Slots(i);
      std::vector<uint16_t> x, y;
      bool bits = true;
      for (size_t s = 0; s < std::min(slots.size(), other.slots.size()); ++s) {
        x.push_back(slots[s].expert);
        y.push_back(other.slots[s].expert);
        bits = bits && Bits(slots[s].weight) == Bits(other.slots[s].weight);
      }
      const bool order = x == y;
      std::sort(x.begin(), x.end());
      std::sort(y.begin(), y.end());
      grade = std::max<size_t>(grade, order ? (bits ? 0 : 1) : x == y ? 2 : 3);
    }
  }
  return kGrades[grade];
}

}  // namespace trivet::proof
