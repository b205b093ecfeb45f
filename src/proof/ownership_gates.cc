// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "proof/gates.h"
#include "proof/recorded_route.h"

namespace trivet::proof {
namespace {

using record::BoundRecord;
using record::DecisionRecord;
using record::Site;

Decision KeyOf(const DecisionRecord& record) { return {record.layer, record.token}; }
Place KeyOf(const BoundRecord& record) { return {record.layer, static_cast<int>(record.site), record.token}; }

// Along which dimensions a rank is not where those stand that carry a decision.
std::vector<std::string> DimensionsOff(const TokenLayout& layout, int64_t rank, const std::vector<int64_t>& carriers) {
  std::vector<std::string> off;
  const Coordinates at = layout.At(rank);
  for (size_t d = 0; d < kDimensions; ++d) {
    const bool shared =
        std::any_of(carriers.begin(), carriers.end(), [&](int64_t carrier) { return layout.At(carrier)[d] == at[d]; });
    if (!shared && !carriers.empty()) off.emplace_back(DimensionName(static_cast<Dimension>(d)));
  }
  return off;
}

Finding Unauthorized(const RecordedRun& run, int64_t rank, Site site, const Decision& decision) {
  const std::vector<int64_t> carriers = run.tokens.Carriers(decision);
  const std::vector<std::string> off = DimensionsOff(run.tokens, rank, carriers);
  Json where = PlaceJson(decision.layer, site, decision.token);
  where.update({{"rank", rank}, {"carriers", carriers}, {"dimensions", off}});
  return Found(Verdict::kAmbiguousGlobalTokenMapping,
               fmt::format("rank {}: holds {} of {}, which ranks [{}] carry{}", rank, TokenName(decision.token),
                           PlaceName(run, decision.layer, site), fmt::join(carriers, ", "),
                           off.empty() ? "" : fmt::format("; it is elsewhere along {}", fmt::join(off, " and "))),
               std::move(where));
}

Finding Lacks(const RecordedRun& run, int64_t rank, Verdict verdict, const Place& place) {
  const auto [layer, site, token] = place;
  Json where = PlaceJson(layer, static_cast<Site>(site), token);
  where["rank"] = rank;
  return Found(verdict,
               fmt::format("rank {}: lacks {} of {}, which it carries", rank, TokenName(token),
                           PlaceName(run, layer, static_cast<Site>(site))),
               std::move(where));
}

// The first key of a sorted range that the other one does not have. Equal keys count once.
template <class Key>
const Key* FirstMissing(const std::vector<Key>& keys, const std::vector<Key>& among) {
  auto other = among.begin();
  for (const Key& key : keys) {
    while (other != among.end() && *other < key) ++other;
    if (other == among.end() || *other != key) return &key;
  }
  return nullptr;
}

// What a rank must hold of every site, the logits left out: they are on one rank.
std::vector<Place> ExpectedBounds(const RecordedRun& run, int64_t rank) {
  std::vector<Place> expected;
  const TokenLayout& layout = run.tokens;
  for (int64_t layer = record::kBeforeLayers; layer <= layout.layers(); ++layer) {
    const std::vector<Decision> held = layout.ExpectedDecisions(rank, {layer});
    std::vector<Site> sites = {Site::kMixer, Site::kRouter, Site::kChannels};
    if (!std::binary_search(run.moe_layers.begin(), run.moe_layers.end(), layer))
      sites = {Site::kMixer, Site::kChannels};
    if (layer == record::kBeforeLayers) sites = {Site::kEmbed};
    if (layer == layout.layers()) sites = {Site::kFinalNorm};
    for (const Site site : sites) {
      size_t request = 0;
      for (const Decision& decision : held) {
        while (layout.requests[request].request != record::RequestOf(decision.token)) ++request;
        const bool wanted =
            site != Site::kFinalNorm || record::PositionOf(decision.token) >= layout.requests[request].logits_from;
        if (wanted) expected.emplace_back(layer, static_cast<int>(site), decision.token);
      }
    }
  }
  return expected;
}

// Walks sorted records of several ranks together and stops where those of one key do not have one value.
template <class Record>
struct Disagreement {
  const Record* record = nullptr;
  std::vector<int64_t> ranks;
  std::vector<Digest> values;
};

template <class Record, class List>
Disagreement<Record> FirstDisagreement(const std::vector<const RankRun*>& ranks, const List& list) {
  std::vector<size_t> at(ranks.size(), 0);
  Disagreement<Record> found;
  while (true) {
    const Record* least = nullptr;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const std::vector<Record>& records = list(*ranks[r]);
      while (at[r] < records.size() && records[at[r]].token == record::kPadding) ++at[r];
      if (at[r] < records.size() && (least == nullptr || KeyOf(records[at[r]]) < KeyOf(*least)))
        least = &records[at[r]];
    }
    if (least == nullptr) return {};
    found = {least, {}, {}};
    bool differs = false;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const std::vector<Record>& records = list(*ranks[r]);
      for (; at[r] < records.size() && KeyOf(records[at[r]]) == KeyOf(*least); ++at[r]) {
        differs = differs || records[at[r]].digest != least->digest;
        found.ranks.push_back(ranks[r]->rank);
        found.values.push_back(records[at[r]].digest);
      }
    }
    if (differs) return found;
  }
}

template <class Record>
Finding Disagrees(const RecordedRun& run, const Disagreement<Record>& found, Verdict verdict, Site site) {
  const Attribution by = Attribute(run.tokens, found.ranks, found.values);
  Json where = PlaceJson(found.record->layer, site, found.record->token);
  where["ranks"] = found.ranks;
  Json values = Json::array();
  std::string text;
  for (size_t i = 0; i < found.ranks.size(); ++i) {
    values.push_back(Hex(found.values[i]));
    text += fmt::format("{}{} on rank {}", i == 0 ? "" : ", ", Hex(found.values[i]), found.ranks[i]);
  }
  where["values"] = values;
  where.update(by.ToJson());
  return Found(verdict,
               fmt::format("{}, {}: ranks that hold the same disagree, by {}: {}",
                           PlaceName(run, found.record->layer, site), TokenName(found.record->token), by.Text(), text),
               std::move(where));
}

}  // namespace

std::string PlaceName(const RecordedRun& run, int64_t layer, Site site) {
  if (layer < 0 || layer >= run.tokens.layers()) return record::SiteName(site);
  return fmt::format("layer {} {}", layer, record::SiteName(site));
}

std::string TokenName(int64_t token) {
  return fmt::format("request {}, position {}", record::RequestOf(token), record::PositionOf(token));
}

Json PlaceJson(int64_t layer, Site site, int64_t token) {
  return {{"layer", layer},
          {"site", record::SiteName(site)},
          {"request", record::RequestOf(token)},
          {"position", record::PositionOf(token)}};
}

std::vector<const RankRun*> ByRank(const RecordedRun& run) {
  std::vector<const RankRun*> ranks(static_cast<size_t>(run.tokens.world));
  for (const RankRun& rank : run.ranks) {
    if (rank.rank < 0 || rank.rank >= run.tokens.world) continue;
    const RankRun*& place = ranks[static_cast<size_t>(rank.rank)];
    if (place == nullptr) place = &rank;
  }
  return ranks;
}

std::string Attribution::Text() const {
  if (dimensions.empty()) return isolated < 0 ? "no one dimension" : fmt::format("rank {} alone", isolated);
  std::string text;
  for (const Dimension dimension : dimensions)
    text += (text.empty() ? "" : " and ") + std::string(DimensionName(dimension));
  return dimensions.size() == 1 ? "dimension " + text : "dimensions " + text + ", inseparable here";
}

Json Attribution::ToJson() const {
  Json names = Json::array();
  for (const Dimension dimension : dimensions) names.push_back(DimensionName(dimension));
  Json json = {{"dimensions", names}};
  if (isolated >= 0) json["isolated_rank"] = isolated;
  return json;
}

Attribution Attribute(const TokenLayout& layout, const std::vector<int64_t>& ranks, const std::vector<Digest>& values) {
  Attribution found;
  for (size_t d = 0; d < kDimensions; ++d) {
    std::map<int64_t, std::set<Digest>> classes;
    for (size_t i = 0; i < ranks.size(); ++i) classes[layout.At(ranks[i])[d]].insert(values[i]);
    const bool constant_inside =
        std::all_of(classes.begin(), classes.end(), [](const auto& one) { return one.second.size() == 1; });
    if (classes.size() > 1 && constant_inside) found.dimensions.push_back(static_cast<Dimension>(d));
  }
  if (!found.dimensions.empty()) return found;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::count(values.begin(), values.end(), values[i]) != 1) continue;
    found.isolated = found.isolated < 0 ? ranks[i] : -2;  // more than one odd value: nobody is alone
    if (found.isolated == -2) break;
  }
  found.isolated = std::max<int64_t>(found.isolated, -1);
  return found;
}

Gate CheckRankSet(const RecordedRun& run) {
  std::set<int64_t> seen;
  for (const RankRun& rank : run.ranks) {
    const char* why = nullptr;
    if (Member(rank.env, "group") != Member(run.layout, "group"))
      why = "is of another group";
    else if (Member(rank.env, "ranks") != run.tokens.world || rank.rank < 0 || rank.rank >= run.tokens.world)
      why = "is none of the run's";
    else if (!seen.insert(rank.rank).second)
      why = "is there twice";
    else if (rank.rank != rank.folder)
      why = "is in another rank's folder";
    if (why == nullptr) continue;
    return Found(Verdict::kStaleRunMetadata, fmt::format("ranks/{:05}: rank {} {}", rank.folder, rank.rank, why),
                 {{"rank", rank.rank}, {"folder", rank.folder}});
  }
  for (int64_t rank = 0; rank < run.tokens.world; ++rank) {
    if (seen.contains(rank)) continue;
    return Found(Verdict::kMissingRank, fmt::format("rank {}: missing, of {}", rank, run.tokens.world),
                 {{"rank", rank}});
  }
  return std::nullopt;
}

Gate CheckOwnership(const RecordedRun& run) {
  std::vector<std::vector<Decision>> expected, held;
  for (const RankRun& rank : run.ranks) {
    expected.push_back(run.tokens.ExpectedDecisions(rank.rank, run.moe_layers));
    std::vector<Decision> keys;
    for (const DecisionRecord& record : rank.decisions) {
      if (record.token != record::kPadding) keys.push_back(KeyOf(record));
    }
    held.push_back(std::move(keys));
  }
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    if (const Decision* key = FirstMissing(held[i], expected[i])) {
      return Unauthorized(run, run.ranks[i].rank, Site::kRoute, *key);
    }
  }
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const Decision* key = FirstMissing(expected[i], held[i]);
    if (key == nullptr) continue;
    return Lacks(run, run.ranks[i].rank, Verdict::kIncompleteArtifact,
                 {key->layer, static_cast<int>(Site::kRoute), key->token});
  }
  return std::nullopt;
}

Gate CheckReplicas(const RecordedRun& run) {
  const std::vector<const RankRun*> ranks = ByRank(run);
  const auto decision = FirstDisagreement<DecisionRecord>(
      ranks, [](const RankRun& rank) -> const std::vector<DecisionRecord>& { return rank.decisions; });
  const auto bound = FirstDisagreement<BoundRecord>(
      ranks, [](const RankRun& rank) -> const std::vector<BoundRecord>& { return rank.bounds; });
  if (decision.record == nullptr && bound.record == nullptr) return std::nullopt;
  const bool bound_first =
      bound.record != nullptr &&
      (decision.record == nullptr ||
       KeyOf(*bound.record) < Place{decision.record->layer, static_cast<int>(Site::kRoute), decision.record->token});
  if (bound_first) return Disagrees(run, bound, Verdict::kBoundaryDigestMismatch, bound.record->site);
  Finding finding = Disagrees(run, decision, Verdict::kRouteSemanticFingerprintMismatch, Site::kRoute);
  // The first rank, and the first that differs from it.
  const Decision where{decision.record->layer, decision.record->token};
  const auto other = std::find_if(decision.values.begin(), decision.values.end(),
                                  [&](const Digest& value) { return value != decision.values[0]; });
  const auto rank_at = [&](size_t i) -> const RankRun& { return *ranks[static_cast<size_t>(decision.ranks[i])]; };
  DescribeRoutes(FindRoute(rank_at(0), where),
                 FindRoute(rank_at(static_cast<size_t>(other - decision.values.begin())), where), &finding.where,
                 &finding.message);
  return finding;
}

Gate CheckBounds(const RecordedRun& run) {
  std::vector<Place> logits, wanted;
  for (const RankRun& rank : run.ranks) {
    const std::vector<Place> expected = ExpectedBounds(run, rank.rank);
    std::vector<Place> held;
    for (const BoundRecord& record : rank.bounds) {
      if (record.token != record::kPadding) (record.site == Site::kLogits ? logits : held).push_back(KeyOf(record));
    }
    if (const Place* key = FirstMissing(held, expected)) {
      const auto [layer, site, token] = *key;
      return Unauthorized(run, rank.rank, static_cast<Site>(site), {layer, token});
    }
    if (const Place* key = FirstMissing(expected, held))
      return Lacks(run, rank.rank, Verdict::kMissingBoundaryTrace, *key);
  }
  for (const RequestFacts& request : run.tokens.requests) {
    for (int64_t position = request.logits_from; position < request.computed; ++position) {
      wanted.emplace_back(run.tokens.layers(), static_cast<int>(Site::kLogits),
                          record::GlobalToken(request.request, position));
    }
  }
  std::sort(logits.begin(), logits.end());
  if (const Place* key = FirstMissing(logits, wanted)) {
    return Unauthorized(run, 0, Site::kLogits, {run.tokens.layers(), std::get<2>(*key)});
  }
  if (const Place* key = FirstMissing(wanted, logits)) return Lacks(run, 0, Verdict::kMissingBoundaryTrace, *key);
  return std::nullopt;
}

}  // namespace trivet::proof
