// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "plan/placement_record.h"
#include "proof/gates.h"

namespace trivet::proof {
namespace {

// Settings that this version knows how to read back.
constexpr const char* kKnobs[] = {"parallel.tp",
                                  "parallel.cp",
                                  "parallel.cp_split",
                                  "parallel.cp_stretch",
                                  "parallel.dp",
                                  "parallel.pp",
                                  "parallel.ep",
                                  "parallel.sp",
                                  "placement.version",
                                  "numerics.contract",
                                  "backend",
                                  "threads",
                                  "kv.dtype",
                                  "kv.prefix_cache",
                                  "batch.prefill_chunk",
                                  "batch.max_sequences",
                                  "batch.prefill_budget",
                                  "launch",
                                  "kv.tokens",
                                  "kernels.rows"};

bool IsKnown(const Json& path) {
  if (!path.is_string()) return false;
  const auto text = path.get<std::string>();
  return text.starts_with("cut.") || std::find(std::begin(kKnobs), std::end(kKnobs), text) != std::end(kKnobs);
}

Finding FromPlan(const plan::Verdict& verdict, const std::string& what) {
  return Found(static_cast<Verdict>(verdict.code), what + ": " + verdict.sentence, {{"map", what}});
}

std::string MapName(size_t index) { return fmt::format("placement/{}.json", index); }

// Every row names a map of the run, and all rows of one step the same.
Gate CheckVersions(const RecordedRun& run) {
  std::map<uint32_t, uint32_t> of_step;
  for (const RankRun& rank : run.ranks) {
    for (const record::DispatchRecord& row : rank.dispatches) {
      const auto [first, added] = of_step.emplace(row.step, row.version);
      if (row.version < run.placements.size() && first->second == row.version) continue;
      Json where = PlaceJson(row.layer, record::Site::kRoute, row.token);
      where["rank"] = rank.rank;
      const std::string other = row.version < run.placements.size()
                                    ? fmt::format("in which others used map {}", first->second)
                                    : fmt::format("and the run has {} of them, from 0 on", run.placements.size());
      return Found(Verdict::kPlacementMapVersionMismatch,
                   fmt::format("rank {}, {}: dispatched by map {} in step {}, {}", rank.rank, TokenName(row.token),
                               row.version, row.step, other),
                   std::move(where));
    }
  }
  return std::nullopt;
}

Gate CheckRows(const RankRun& rank, const std::vector<plan::Placement>& maps) {
  std::vector<std::vector<plan::ExpertAddress>> addresses;
  for (const plan::Placement& map : maps) addresses.push_back(map.Addresses());
  for (const record::DispatchRecord& row : rank.dispatches) {
    const std::vector<plan::ExpertAddress>& map = addresses[row.version];
    const plan::ExpertAddress found{row.ep_rank, row.local_slot};
    if (row.expert < map.size() && map[row.expert] == found) continue;
    const plan::ExpertAddress expected = row.expert < map.size() ? map[row.expert] : plan::ExpertAddress{};
    Json where = PlaceJson(row.layer, record::Site::kRoute, row.token);
    where.update({{"rank", rank.rank}, {"slot", row.slot}, {"expert", row.expert}});
    return Found(Verdict::kInvalidPlacementMap,
                 fmt::format("rank {}, {}, layer {}, slot {}: expert {} was dispatched to slot {} of group {}; the map "
                             "says slot {} of group {}",
                             rank.rank, TokenName(row.token), row.layer, row.slot, row.expert, row.local_slot,
                             row.ep_rank, expected.local_slot, expected.ep_rank),
                 std::move(where));
  }
  return std::nullopt;
}

using Slot = std::pair<int64_t, int64_t>;  // layer, and slot or expert
using Digests = std::map<Slot, Digest>;

// A list of {"layer", `key`, "digest"}; what is not of this form is left out, and missed later.
Digests DigestsOf(const Json& list, const char* key) {
  Digests digests;
  for (const Json& entry : list) {
    const Json &layer = Member(entry, "layer"), &index = Member(entry, key), &text = Member(entry, "digest");
    if (!layer.is_number_integer() || !index.is_number_integer() || !text.is_string()) continue;
    if (const auto digest = ParseDigest(text.get<std::string>())) digests[{layer, index}] = *digest;
  }
  return digests;
}

// What one rank holds of the experts.
struct Holder {
  int64_t rank = 0, ep_rank = -1;
  int64_t begin = 0, end = 0;  // channels
  Digests slots;
};

// Every rank has a range of channels: without one, what it holds could not be judged.
Gate CheckChannels(const RecordedRun& run) {
  const Json& channels = Member(Member(run.layout, "experts"), "channels");
  const auto is_range = [](const Json& range) {
    return range.is_array() && range.size() == 2 && IsInt64(range[0]) && IsInt64(range[1]) && range[0] >= 0 &&
           range[0] <= range[1];
  };
  const bool all = channels.is_array() && channels.size() == static_cast<size_t>(run.tokens.world) &&
                   std::all_of(channels.begin(), channels.end(), is_range);
  if (all) return std::nullopt;
  return Found(Verdict::kSchemaMismatch, "layout.json: experts: expected a range of channels for every rank");
}

// All ranks that are there. The channels are in order.
std::vector<Holder> HoldersOf(const RecordedRun& run) {
  std::vector<Holder> holders;
  const Json& channels = Member(Member(run.layout, "experts"), "channels");
  for (const RankRun* rank : ByRank(run)) {
    if (rank == nullptr) continue;
    const Json& range = channels[static_cast<size_t>(rank->rank)];
    holders.push_back({rank->rank, run.tokens.At(rank->rank)[static_cast<size_t>(Dimension::kEp)], range[0], range[1],
                       DigestsOf(Member(rank->weights, "experts"), "slot")});
  }
  return holders;
}

// One expert of one layer: its parts, or its copies, against the checkpoint's.
class ExpertCheck {
 public:
  ExpertCheck(const RecordedRun& run, std::vector<Holder> holders) : run_(run), holders_(std::move(holders)) {
    const Json& width = Member(Member(run.layout, "experts"), "width");
    width_ = width.is_number_integer() ? width.get<int64_t>() : -1;
    for (const RankRun* rank : ByRank(run)) {
      complete_ = complete_ && rank != nullptr;
      if (rank != nullptr) reference_.merge(DigestsOf(Member(rank->weights, "reference"), "expert"));
    }
  }

  Gate Check(int64_t layer, int64_t expert, const plan::ExpertAddress& address) const {
    const auto reference = reference_.find({layer, expert});
    if (reference == reference_.end()) return Gap(layer, expert, "nobody says what the checkpoint has there");
    // Ranks of other stages hold other layers.
    const int64_t stage = run_.tokens.stage_of[static_cast<size_t>(layer)];
    Digest sum;
    int64_t covered = 0;
    std::string ranks;
    for (const Holder& holder : holders_) {
      const int64_t pp = run_.tokens.At(holder.rank)[static_cast<size_t>(Dimension::kPp)];
      if (holder.ep_rank != address.ep_rank || pp != stage) continue;
      const auto slot = holder.slots.find({layer, address.local_slot});
      if (slot == holder.slots.end()) return Gap(layer, expert, fmt::format("rank {} does not say", holder.rank));
      const bool whole = holder.begin == 0 && holder.end == width_;
      if (whole && slot->second != reference->second) {
        return Differs(layer, expert, address, {fmt::format("{}", holder.rank), slot->second, reference->second});
      }
      sum = whole ? sum : Add(sum, slot->second);
      covered += whole ? 0 : holder.end - holder.begin;
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", holder.rank);
    }
    if (covered == 0 && !ranks.empty()) return std::nullopt;
    if (covered % std::max<int64_t>(1, width_) != 0 || ranks.empty())
      return Gap(layer, expert, "not all channels are held");
    // Groups of ranks that replicate each other hold the expert several times.
    Digest expected;
    for (int64_t i = 0; i < covered / width_; ++i) expected = Add(expected, reference->second);
    if (sum == expected) return std::nullopt;
    return Differs(layer, expert, address, {ranks, sum, expected});
  }

 private:
  struct Difference {
    std::string ranks;
    Digest found, expected;
  };

  Gate Gap(int64_t layer, int64_t expert, const std::string& why) const {
    if (!complete_) return std::nullopt;
    return Found(Verdict::kIncompleteArtifact, fmt::format("layer {}, expert {}: {}", layer, expert, why),
                 {{"layer", layer}, {"expert", expert}});
  }
  static Gate Differs(int64_t layer, int64_t expert, const plan::ExpertAddress& address, const Difference& difference) {
    return Found(
        Verdict::kSlotWeightDigestMismatch,
        fmt::format("layer {}, slot {} of group {} (ranks {}): holds {}, and expert {} of the checkpoint is {}", layer,
                    address.local_slot, address.ep_rank, difference.ranks, Hex(difference.found), expert,
                    Hex(difference.expected)),
        {{"layer", layer},
         {"expert", expert},
         {"ep_rank", address.ep_rank},
         {"local_slot", address.local_slot},
         {"ranks", difference.ranks},
         {"found", Hex(difference.found)},
         {"expected", Hex(difference.expected)}});
  }

  const RecordedRun& run_;
  const std::vector<Holder> holders_;
  Digests reference_;
  int64_t width_ = 0;
  bool complete_ = true;
};

// The maps of a run whose placements hold.
Gate Maps(const RecordedRun& run, std::vector<plan::Placement>* maps) {
  for (size_t i = 0; i < run.placements.size(); ++i) {
    const Result<plan::PlacementRecord> record = plan::ParsePlacementRecord(run.placements[i], MapName(i));
    if (!record.ok()) return Found(Verdict::kInvalidPlacementMap, record.error().message, {{"map", MapName(i)}});
    const plan::Verdict verdict = plan::CheckPlacementStructure(*record);
    if (!verdict.passed()) return FromPlan(verdict, MapName(i));
    maps->push_back(plan::MakePlacement(*record, MapName(i)).value());
    if (Member(Member(run.run, "router"), "experts") == maps->back().experts()) continue;
    return Found(Verdict::kInvalidPlacementMap, MapName(i) + ": does not place as many experts as the model has",
                 {{"map", MapName(i)}});
  }
  return std::nullopt;
}

}  // namespace

Gate CheckKnobs(const RecordedRun& run) {
  const Json& knobs = Member(run.run, "knobs");
  if (!knobs.is_array() || knobs.empty()) return Found(Verdict::kKnobNotApplied, "run.json: no setting was read back");
  for (const Json& knob : knobs) {
    const Json& path = Member(knob, "path");
    const char* why = nullptr;
    if (!IsKnown(path))
      why = "a setting that no run of this version has";
    else if (Member(knob, "status") != "applied")
      why = "did not apply";
    else if (Find(knob, "actual") == nullptr || knob["actual"] != Member(knob, "materialized"))
      why = "was read back otherwise";
    if (why == nullptr) continue;
    return Found(
        Verdict::kKnobNotApplied,
        fmt::format("{}: {}: planned {}, found {} ({})", DumpJson(path), why, DumpJson(Member(knob, "materialized")),
                    DumpJson(Member(knob, "actual")), DumpJson(Member(knob, "status"))),
        {{"knob", knob}});
  }
  return std::nullopt;
}

Gate CheckPlacements(const RecordedRun& run) {
  if (Gate gate = CheckVersions(run)) return gate;
  for (size_t i = 0; i < run.placements.size(); ++i) {
    const Json &named = run.run["placement"][i], &version = Member(run.placements[i], "version");
    if (named == version) continue;
    return Found(Verdict::kPlacementMapVersionMismatch,
                 fmt::format("{}: is version {}, and the run used {}", MapName(i), DumpJson(version), DumpJson(named)),
                 {{"map", MapName(i)}});
  }
  if (run.placements.empty() && !run.moe_layers.empty()) {
    return Found(Verdict::kInvalidPlacementMap, "run.json: names no map of its experts");
  }
  std::vector<plan::Placement> maps;
  if (Gate gate = Maps(run, &maps)) return gate;
  for (const RankRun& rank : run.ranks) {
    if (Gate gate = CheckRows(rank, maps)) return gate;
  }
  return std::nullopt;
}

Gate CheckSlots(const RecordedRun& run) {
  if (run.moe_layers.empty()) return std::nullopt;
  if (Gate gate = CheckChannels(run)) return gate;
  std::vector<plan::Placement> maps;
  if (Gate gate = Maps(run, &maps)) return gate;
  const ExpertCheck check(run, HoldersOf(run));
  const std::vector<plan::ExpertAddress> addresses = maps.back().Addresses();
  for (const int64_t layer : run.moe_layers) {
    for (size_t expert = 0; expert < addresses.size(); ++expert) {
      if (Gate gate = check.Check(layer, static_cast<int64_t>(expert), addresses[expert])) return gate;
    }
  }
  return std::nullopt;
}

}  // namespace trivet::proof
