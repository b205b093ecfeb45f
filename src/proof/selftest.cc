// SPDX-License-Identifier: Apache-2.0
#include "proof/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "proof/rank_files.h"
#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

using Options = std::vector<SyntheticOptions>;

SyntheticOptions Sized(const Coordinates& sizes) {
  SyntheticOptions options;
  options.sizes = sizes;
  return options;
}

SyntheticOptions WithExperts(const Coordinates& sizes, const std::vector<Dimension>& over) {
  SyntheticOptions options = Sized(sizes);
  options.expert_group_over = over;
  if (over.empty()) options.rank_order.push_back(Dimension::kEp);
  return options;
}

SelftestCase Control(const std::string& name, const std::string& what, const Options& options,
                     const std::function<void(size_t index, RecordedRun* run)>& edit = {}) {
  const auto make = [options, edit] {
    std::vector<NamedFiles> runs;
    for (size_t i = 0; i < options.size(); ++i) {
      RecordedRun run = MakeSynthetic(options[i]);
      if (edit) edit(i, &run);
      runs.push_back({fmt::format("run {}", i), EncodeRun(run)});
    }
    return runs;
  };
  return {name, what, Verdict::kPass, "", make};
}

// Other names, other order of rows, padding here and there.
void Disguise(RecordedRun* run) {
  run->layout["group"] = "another";
  run->run["group"] = "another";
  for (RankRun& rank : run->ranks) {
    rank.env["group"] = "another";
    record::DecisionRecord padding = rank.decisions[0];
    padding.token = record::kPadding;
    rank.decisions.insert(rank.decisions.begin(), padding);
    std::reverse(rank.rows.begin(), rank.rows.end());
  }
}

// What a sequence that lost its pages leaves: its tokens stand in two steps.
void ComputeAgain(RecordedRun* run) {
  for (RankRun& rank : run->ranks) {
    const auto again = [](auto* records) {
      auto copies = *records;
      for (auto& copy : copies) copy.step += 100;
      records->insert(records->end(), copies.begin(), copies.end());
    };
    again(&rank.rows);
    again(&rank.dispatches);
    again(&rank.executions);
    const auto by_step = [](const auto& a, const auto& b) {
      return std::tie(a.layer, a.token, a.slot, a.step) < std::tie(b.layer, b.token, b.slot, b.step);
    };
    std::sort(rank.dispatches.begin(), rank.dispatches.end(), by_step);
    std::sort(rank.executions.begin(), rank.executions.end(), by_step);
  }
}

// What a model without experts records.
void WithoutExperts(RecordedRun* run) {
  run->run["router"] = {{"layers", Json::array()}};
  run->run["placement"] = Json::array();
  run->placements.clear();
  for (RankRun& rank : run->ranks) {
    rank.weights = {{"experts", Json::array()}, {"reference", Json::array()}};
    rank.decisions.clear();
    rank.routes = {};
    rank.dispatches.clear();
    rank.executions.clear();
    std::erase_if(rank.bounds, [](const record::BoundRecord& bound) { return bound.site == record::Site::kRouter; });
  }
}

// The map without its new keys, as older consumers know it.
void OldMap(RecordedRun* run) {
  const Json old = {{"version", run->placements[0]["version"]},
                    {"logical_to_physical", run->placements[0]["logical_to_physical"]}};
  run->placements[0] = old;
}

// The map made from pairs, or from a fragment of itself.
void RemakeMap(size_t index, RecordedRun* run) {
  const plan::Placement formula = plan::Placement::FromPlanFragment(run->placements[0], "map").value();
  if (index == 1) {
    run->placements[0] =
        plan::Placement::FromPairs(formula.Addresses(), formula.ep_size(), {formula.version, formula.semantics})
            .value()
            .PlanFragment();
  }
  if (index == 2) run->placements[0] = formula.PlanFragment();
}

}  // namespace

std::vector<SelftestCase> Controls() {
  const SyntheticOptions one = Sized({1, 1, 1, 1, 1});
  const SyntheticOptions groups = WithExperts({2, 1, 1, 1, 2}, {});
  SyntheticOptions idle = Sized({1, 1, 3, 1, 1}), other_steps = one, digest = one, sequence = Sized({2, 2, 1, 1, 1});
  idle.dp_of = {0, 1};
  other_steps.step_tokens = 1;
  digest.level = record::Level::kDigest;
  sequence.sp = true;
  SyntheticOptions swapped = sequence, zigzag = Sized({1, 2, 1, 1, 1}), batches = Sized({1, 1, 2, 1, 1});
  swapped.cp_first = false;
  zigzag.zigzag = true;
  batches.dp_of = {0, 1};
  SyntheticOptions exchanged = batches;
  exchanged.dp_of = {1, 0};
  SyntheticOptions folded = WithExperts({2, 1, 2, 1, 4}, {Dimension::kTp, Dimension::kDp});
  folded.dp_of = {0, 1};
  SyntheticOptions interleaved = groups;
  interleaved.strategy = plan::PlacementStrategy::kInterleave;
  SyntheticOptions all = WithExperts({2, 2, 2, 2, 2}, {});
  all.dp_of = {1, 0};
  SelftestCase same_sums =
      Control("C6", "one sum read back in two ways", {one, one}, [](size_t index, RecordedRun* run) {
        for (RankRun& rank : run->ranks) {
          for (Json& record : rank.collectives) record["source"] = index == 0 ? "schedule" : "profiler";
        }
      });
  same_sums.options.same_reduction = true;
  return {
      Control("C1", "a rank holds decisions whose experts are elsewhere", {groups}),
      Control("C2", "stages hold disjoint layers", {Sized({1, 1, 1, 2, 1})}),
      Control("C3", "two ranks of tp hold the same token", {Sized({2, 1, 1, 1, 1})}),
      Control("C4", "rank 0 has other tokens in another layout", {one, Sized({1, 2, 1, 1, 1}), zigzag, batches}),
      Control("C5", "a data-parallel rank owns nothing", {one, idle}),
      same_sums,
      Control("C7", "other order of rows, padding, other names", {one, one},
              [](size_t index, RecordedRun* run) {
                if (index == 1) Disguise(run);
              }),
      Control("C8", "a map read by its two oldest keys alone", {one}, [](size_t, RecordedRun* run) { OldMap(run); }),
      Control("C9", "a group of one that adds nothing", {digest}),
      Control("C10", "one map by formula, by pairs and by fragment", {groups, groups, groups}, RemakeMap),
      Control("C11", "one layout, other batches", {one, other_steps}),
      Control("C12", "another replica computes each request, on the same bits", {batches, exchanged}),
      Control("C14", "three ranks, and a fourth of pipeline and data",
              {one, Sized({3, 1, 1, 1, 1}), Sized({3, 1, 2, 2, 1})}),
      Control("C15", "sequence parallelism before and after context parallelism", {one, sequence, swapped}),
      Control("C16", "expert groups folded over tp and dp, and other maps", {one, folded, groups, interleaved}),
      Control("C17", "all dimensions at once", {one, all}),
      Control("C18", "a model without experts", {one, Sized({3, 1, 1, 2, 1})},
              [](size_t, RecordedRun* run) { WithoutExperts(run); }),
      Control("C19", "tokens computed a second time, in a later step", {one, one},
              [](size_t index, RecordedRun* run) {
                if (index == 1) ComputeAgain(run);
              }),
  };
}

std::string Unexpected(const SelftestCase& one, const Report& report) {
  const Finding& found = report.finding;
  if (found.verdict != one.expected) {
    return fmt::format("{} ({}): expected {}, found {}: {}", one.name, one.what, VerdictName(one.expected),
                       VerdictName(found.verdict), found.message);
  }
  if (one.dimension.empty()) return "";
  const Json& dimensions = Member(found.where, "dimensions");
  if (dimensions == Json::array({one.dimension})) return "";
  return fmt::format("{} ({}): expected the dimension {}, found {}", one.name, one.what, one.dimension,
                     DumpJson(dimensions));
}

Mutations MutateBytes(int64_t count, uint64_t seed) {
  SyntheticOptions options = Sized({2, 1, 1, 1, 1});
  options.lengths = {4};
  options.dp_of = {0};
  options.level = record::Level::kDigest;
  Files files = EncodeRun(MakeSynthetic(options));
  std::vector<std::pair<std::string*, size_t>> bytes;
  for (auto& [path, content] : files) {
    for (size_t i = 0; i < content.size(); ++i) bytes.emplace_back(&content, i);
  }
  std::mt19937_64 random(seed);
  Mutations result;
  RecordedRun run;
  for (; result.changed < count; ++result.changed) {
    const auto& [content, index] = bytes[random() % bytes.size()];
    const auto change = static_cast<char>(1 + random() % 255);
    (*content)[index] = static_cast<char>((*content)[index] ^ change);
    if (!CheckRun(files, &run) && result.accepted++ == 0) result.first = fmt::format("byte {}", index);
    (*content)[index] = static_cast<char>((*content)[index] ^ change);
  }
  return result;
}

SelftestResult Selftest() {
  SelftestResult result;
  result.json = {{"schema", "trivet.selftest.v1"}, {"cases", Json::array()}};
  int64_t failed = 0, count = 0;
  for (const auto& list : {Negatives(), Controls()}) {
    for (const SelftestCase& one : list) {
      const Report report = Verify(one.make(), one.options);
      const std::string unexpected = Unexpected(one, report);
      result.json["cases"].push_back({{"name", one.name},
                                      {"what", one.what},
                                      {"expected", VerdictName(one.expected)},
                                      {"found", VerdictName(report.finding.verdict)},
                                      {"message", report.finding.message},
                                      {"ok", unexpected.empty()}});
      ++count;
      if (unexpected.empty()) continue;
      ++failed;
      result.text += unexpected + "\n";
    }
  }
  constexpr int64_t kMutations = 10000;
  const Mutations mutations = MutateBytes(kMutations, 1);
  result.json["mutations"] = {{"changed", mutations.changed}, {"accepted", mutations.accepted}};
  if (mutations.accepted > 0) result.text += fmt::format("a changed run was accepted: {}\n", mutations.first);
  result.passed = failed == 0 && mutations.accepted == 0;
  result.text += fmt::format("{} of {} cases as expected; of {} runs with a byte changed, {} accepted\n",
                             count - failed, count, mutations.changed, mutations.accepted);
  return result;
}

}  // namespace trivet::proof
