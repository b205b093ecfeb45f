// SPDX-License-Identifier: Apache-2.0
#include "proof/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "proof/gates.h"

namespace trivet::proof {
namespace {

using record::Site;

// Every field of a record. The ones that can move a bit come first.
constexpr std::array kFields = {"kind",       "actual",          "ranks",    "order", "owners",
                                "payload",    "accumulate",      "round_at", "site",  "layer",
                                "configured", "fallback_reason", "source",   "calls", "notes"};
constexpr size_t kMovesBits = 8;

Finding About(const RankRun& rank, const Json& record, Verdict verdict, const std::string& text) {
  return Found(verdict,
               fmt::format("rank {}, layer {} {}: {}", rank.rank, DumpJson(Member(record, "layer")),
                           DumpJson(Member(record, "site")), text),
               {{"rank", rank.rank}, {"record", record}});
}

Gate CheckRecord(const RankRun& rank, const Json& record) {
  for (const char* field : kFields) {
    if (Find(record, field) != nullptr) continue;
    return About(rank, record, Verdict::kMissingProvenance, fmt::format("\"{}\" is not recorded", field));
  }
  if (!record["ranks"].is_array() || record["ranks"].empty() || !record["layer"].is_number_integer() ||
      !record["site"].is_string()) {
    return About(rank, record, Verdict::kMissingProvenance, "not the record of a sum");
  }
  if (!record["source"].is_string() || record["source"] == "") {
    return About(rank, record, Verdict::kMissingProvenance, "nobody says how it was observed");
  }
  if (record["kind"] == "none" && record["ranks"].size() > 1) {
    return About(rank, record, Verdict::kMissingProvenance,
                 fmt::format("no sum is recorded, and {} ranks took part", record["ranks"].size()));
  }
  return std::nullopt;
}

// The sites of the layers that a rank holds where a sum is made, or may be, or rows come together; with the fewest
// ranks that take part: rows that are dealt come together on all of those that they are dealt to, and the rest is
// nothing where the ranks hold no heads or the whole of what would be summed.
using Sites = std::map<std::pair<int64_t, std::string>, int64_t>;

Sites SitesOf(const RecordedRun& run, int64_t rank) {
  Sites sites;
  const TokenLayout& layout = run.tokens;
  const auto size = [&](Dimension dimension) { return layout.sizes[static_cast<size_t>(dimension)]; };
  const auto has = [](const std::vector<int64_t>& layers, int64_t layer) {
    return std::binary_search(layers.begin(), layers.end(), layer);
  };
  const int64_t stage = layout.At(rank)[static_cast<size_t>(Dimension::kPp)],
                dealt = layout.sp ? size(Dimension::kTp) : 1;
  for (int64_t layer = 0; layer < layout.layers(); ++layer) {
    if (layout.stage_of[static_cast<size_t>(layer)] != stage) continue;
    const auto add = [&](Site site, int64_t ranks) { sites[{layer, record::SiteName(site)}] = ranks; };
    for (const Site site : {Site::kMixer, Site::kChannels}) add(site, 1);
    if (dealt > 1) {
      for (const Site site : {Site::kMixerNorm, Site::kChannelsNorm}) add(site, dealt);
      if (has(run.moe_layers, layer)) add(Site::kRouter, dealt);
    }
    if (size(Dimension::kCp) == 1) continue;
    add(Site::kShown, 1);
    if (has(run.delta_layers, layer)) add(Site::kReturned, 1);
  }
  return sites;
}

// The records of a rank by site and layer; of several, the one with the least fingerprint.
using Records = std::map<std::pair<int64_t, std::string>, const Json*>;

Records BySite(const RankRun* rank) {
  Records found;
  if (rank == nullptr) return found;
  for (const Json& record : rank->collectives) {
    const Json*& place = found[{Member(record, "layer").get<int64_t>(), Member(record, "site").get<std::string>()}];
    if (place == nullptr || ReductionFingerprint(record) < ReductionFingerprint(*place)) place = &record;
  }
  return found;
}

// Those of every site of the run, as the lowest rank that has it says: stages have sites of their own.
Records AllSites(const RecordedRun& run) {
  Records all;
  for (const RankRun* rank : ByRank(run)) {
    for (const auto& [place, record] : BySite(rank)) all.emplace(place, record);
  }
  return all;
}

// What all ranks of a run recorded at a site: of every field that can move a bit the values, by their text. Whom a sum
// is of has other names in every group, so that it is the lowest rank's.
struct FieldsOfSite {
  Json first;  // the lowest rank's record
  std::array<std::map<std::string, Json>, kMovesBits> values;
};
using FieldsOfSites = std::map<std::pair<int64_t, std::string>, FieldsOfSite>;

FieldsOfSites AllFields(const RecordedRun& run) {
  FieldsOfSites all;
  for (const auto& [place, record] : AllSites(run)) all[place].first = *record;
  for (const RankRun* rank : ByRank(run)) {
    for (const Json& record : rank->collectives) {
      FieldsOfSite& site = all[{Member(record, "layer").get<int64_t>(), Member(record, "site").get<std::string>()}];
      for (size_t i = 0; i < kMovesBits; ++i) {
        const bool names_ranks = std::string_view(kFields[i]) == "ranks" || std::string_view(kFields[i]) == "owners";
        const Json& value = Member(names_ranks ? site.first : record, kFields[i]);
        site.values[i].emplace(DumpJson(value), value);
      }
    }
  }
  return all;
}

// The one value that all recorded, or the array of theirs.
Json Told(const std::map<std::string, Json>& values) {
  if (values.size() == 1) return values.begin()->second;
  Json all = Json::array();
  for (const auto& [text, value] : values) all.push_back(value);
  return all;
}

}  // namespace

Digest ReductionFingerprint(const Json& record) {
  Json moving = Json::array();
  for (size_t i = 0; i < kMovesBits; ++i) moving.push_back(Member(record, kFields[i]));
  return Hash128(DumpJson(moving));
}

Gate CheckCollectives(const RecordedRun& run) {
  for (const RankRun& rank : run.ranks) {
    const Sites sites = SitesOf(run, rank.rank);
    Sites missing = sites;
    if (rank.rows.empty()) missing.clear();  // a rank without work has no sums
    for (const Json& record : rank.collectives) {
      if (Gate gate = CheckRecord(rank, record)) return gate;
      const std::pair<int64_t, std::string> place{record["layer"].get<int64_t>(), record["site"].get<std::string>()};
      missing.erase(place);
      const auto site = sites.find(place);
      const auto ranks = static_cast<int64_t>(record["ranks"].size());
      if (site == sites.end() || ranks >= site->second) continue;
      return About(rank, record, Verdict::kMissingProvenance,
                   fmt::format("rows are dealt to {} ranks, and {} took part", site->second, ranks));
    }
    if (missing.empty()) continue;
    const auto& [layer, site] = missing.begin()->first;
    return Found(Verdict::kMissingProvenance,
                 fmt::format("rank {}, layer {} {}: no sum or gather is recorded", rank.rank, layer, site),
                 {{"rank", rank.rank}, {"layer", layer}, {"site", site}});
  }
  for (const RankRun& rank : run.ranks) {
    for (const Json& record : rank.collectives) {
      if (record["configured"] == record["actual"]) continue;
      if (record["fallback_reason"].is_string() && record["fallback_reason"] != "") continue;
      return About(rank, record, Verdict::kSilentFallback,
                   fmt::format("{} was configured, {} ran, and nobody says why", DumpJson(record["configured"]),
                               DumpJson(record["actual"])));
    }
  }
  return std::nullopt;
}

std::vector<ReductionDelta> DescribeReductions(const RecordedRun& a, const RecordedRun& b) {
  std::vector<ReductionDelta> deltas;
  const FieldsOfSites of_a = AllFields(a), of_b = AllFields(b);
  for (const auto& [place, fields] : of_a) {
    const auto other = of_b.find(place);
    if (other == of_b.end()) {
      deltas.push_back({place.second, place.first, "record", fields.first, nullptr});
      continue;
    }
    for (size_t i = 0; i < kMovesBits; ++i) {
      const Json x = Told(fields.values[i]), y = Told(other->second.values[i]);
      if (x != y) deltas.push_back({place.second, place.first, kFields[i], x, y});
    }
  }
  return deltas;
}

Json ReductionBefore(const RecordedRun& run, int64_t layer, Site site) {
  const std::vector<const RankRun*> ranks = ByRank(run);
  const Records first = AllSites(run);
  auto last = first.end();
  std::pair<int64_t, int> at{-2, 0};
  for (auto it = first.begin(); it != first.end(); ++it) {
    for (const Site one : {Site::kEmbed, Site::kMixer, Site::kChannels, Site::kLogits}) {
      const std::pair<int64_t, int> here{it->first.first, static_cast<int>(one)};
      const bool before = here <= std::pair(layer, static_cast<int>(site)) && here >= at;
      if (record::SiteName(one) != it->first.second || !before) continue;
      at = here;
      last = it;
    }
  }
  if (last == first.end()) return nullptr;
  for (const RankRun* rank : ranks) {
    const Records others = BySite(rank);
    const auto other = others.find(last->first);
    if (other == others.end()) continue;
    for (const char* field : {"order", "round_at"}) {
      if ((*other->second)[field] != (*last->second)[field]) return *other->second;
    }
  }
  return *last->second;
}

}  // namespace trivet::proof
