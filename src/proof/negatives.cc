// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "proof/rank_files.h"
#include "proof/selftest.h"
#include "proof/synthetic.h"

namespace trivet::proof {
namespace {

using record::Site;

// Changes a run in one way.
using Edit = std::function<void(RecordedRun*)>;

SyntheticOptions Sized(int64_t tp, int64_t cp, int64_t dp, int64_t pp) {
  SyntheticOptions options;
  options.sizes = {tp, cp, dp, pp, 1};
  if (dp > 1) options.dp_of = {0, 1};
  return options;
}

// tp 2, and two expert groups that are no other dimension's.
SyntheticOptions Experts() {
  SyntheticOptions options = Sized(2, 1, 1, 1);
  options.sizes[static_cast<size_t>(Dimension::kEp)] = 2;
  options.rank_order.push_back(Dimension::kEp);
  return options;
}

SyntheticOptions Digests(SyntheticOptions options) {
  options.level = record::Level::kDigest;
  return options;
}

std::vector<NamedFiles> One(const SyntheticOptions& options, const Edit& edit) {
  RecordedRun run = MakeSynthetic(options);
  edit(&run);
  return {{"run", EncodeRun(run)}};
}

// A run as it should be, and another one that was changed.
std::vector<NamedFiles> Two(const SyntheticOptions& a, const SyntheticOptions& b, const Edit& edit) {
  std::vector<NamedFiles> runs = {{"first", EncodeRun(MakeSynthetic(a))}};
  std::vector<NamedFiles> other = One(b, edit);
  other[0].name = "second";
  runs.push_back(std::move(other[0]));
  return runs;
}

SelftestCase InOne(const std::string& name, const std::string& what, Verdict expected, const SyntheticOptions& options,
                   const Edit& edit) {
  return {name, what, expected, "", [options, edit] { return One(options, edit); }};
}

void Version(RecordedRun* run) {
  for (record::DispatchRecord& row : run->ranks[1].dispatches) row.version = 7;
}

void SharedSlot(RecordedRun* run) {
  Json& map = run->placements[0];
  map["physical"][1] = map["physical"][0];
}

void SwapSlotDigests(RecordedRun* run) {
  Json& experts = run->ranks[1].weights["experts"];
  std::swap(experts[0]["digest"], experts[1]["digest"]);
}

void OtherGroup(RecordedRun* run) { run->ranks[1].env["group"] = "another"; }
void WithoutRank(RecordedRun* run) { run->ranks.erase(run->ranks.begin() + 2); }

// Gives rank `to` the decisions of rank `from` that `wanted` picks.
void GiveDecisions(RecordedRun* run, size_t from, size_t to,
                   const std::function<bool(const record::DecisionRecord&)>& wanted) {
  std::vector<record::DecisionRecord>& held = run->ranks[to].decisions;
  for (const record::DecisionRecord& decision : run->ranks[from].decisions) {
    if (wanted(decision)) held.push_back(decision);
  }
  std::sort(held.begin(), held.end(),
            [](const auto& a, const auto& b) { return std::tie(a.layer, a.token) < std::tie(b.layer, b.token); });
}

void LoseDecision(RecordedRun* run) { run->ranks[0].decisions.erase(run->ranks[0].decisions.begin() + 3); }

// Flips a bit in the digests of the decisions that `wanted` picks.
void FlipDecisions(RecordedRun* run, const std::function<bool(const RankRun&, const record::DecisionRecord&)>& wanted) {
  for (RankRun& rank : run->ranks) {
    for (record::DecisionRecord& decision : rank.decisions) {
      if (wanted(rank, decision)) decision.digest.low ^= 1;
    }
  }
}

void FlipBound(RankRun* rank, Site site, int64_t layer, int64_t token) {
  for (record::BoundRecord& bound : rank->bounds) {
    if (bound.site == site && bound.layer == layer && bound.token == token) bound.digest.high ^= uint64_t{1} << 63;
  }
}

std::vector<SelftestCase> PlacementCases() {
  SyntheticOptions local = Experts();
  local.semantics = plan::PlacementSemantics::kRankLocal;
  return {
      InOne("N1", "one rank's dispatch rows name an older map", Verdict::kPlacementMapVersionMismatch, Experts(),
            Version),
      InOne("N2", "two experts share a slot", Verdict::kInvalidPlacementMap, Experts(), SharedSlot),
      InOne("N3", "a hole in a group's table", Verdict::kInvalidPlacementMap, local,
            [](RecordedRun* run) { run->placements[0]["physical"][2] = 3; }),
      InOne("N4", "rank-local ids declared as global", Verdict::kInvalidPlacementMap, local,
            [](RecordedRun* run) { run->placements[0]["semantics"] = "global"; }),
      InOne("N5", "one row's address is not the map's", Verdict::kInvalidPlacementMap, Experts(),
            [](RecordedRun* run) { run->ranks[0].dispatches[4].local_slot ^= 1; }),
      InOne("N6", "an older map and a malformed one", Verdict::kPlacementMapVersionMismatch, Experts(),
            [](RecordedRun* run) {
              Version(run);
              SharedSlot(run);
            }),
      InOne("S1", "a slot holds another expert", Verdict::kSlotWeightDigestMismatch, Experts(), SwapSlotDigests),
      InOne("S2", "nobody says what a slot holds", Verdict::kIncompleteArtifact, Experts(),
            [](RecordedRun* run) { run->ranks[1].weights["experts"].erase(2); }),
  };
}

std::vector<SelftestCase> RankCases() {
  return {
      InOne("N7", "a rank is there twice", Verdict::kStaleRunMetadata, Sized(3, 1, 1, 1),
            [](RecordedRun* run) {
              run->ranks.push_back(run->ranks[1]);
              run->ranks.back().folder = 3;
            }),
      InOne("N8", "a rank of another group", Verdict::kStaleRunMetadata, Sized(3, 1, 1, 1), OtherGroup),
      InOne("N9", "a rank is missing", Verdict::kMissingRank, Sized(3, 1, 1, 1), WithoutRank),
      InOne("N10", "a rank of another group, and one missing", Verdict::kStaleRunMetadata, Sized(3, 1, 1, 1),
            [](RecordedRun* run) {
              OtherGroup(run);
              WithoutRank(run);
            }),
  };
}

std::vector<SelftestCase> OwnershipCases() {
  const auto in_layer = [](int16_t layer) {
    return [layer](const record::DecisionRecord& decision) { return decision.layer == layer; };
  };
  const auto first = [](const record::DecisionRecord& decision) { return decision.layer == 0 && decision.token == 0; };
  const auto second_request = [](const record::DecisionRecord& decision) {
    return record::RequestOf(decision.token) == 1;
  };
  const auto of_layers_0_and_1 = in_layer(1);
  SyntheticOptions sequence = Digests(Sized(2, 2, 1, 1));
  sequence.sp = true;
  SyntheticOptions swapped = sequence;
  swapped.cp_first = false;
  SyntheticOptions zigzag = Digests(Sized(1, 2, 1, 1));
  zigzag.zigzag = true;
  SyntheticOptions stretched = Digests(Sized(1, 2, 1, 1));
  stretched.cp_stretch = 2;
  return {
      InOne("N11", "a rank holds a decision of another part of the sequence", Verdict::kAmbiguousGlobalTokenMapping,
            Digests(Sized(1, 2, 1, 1)), [first](RecordedRun* run) { GiveDecisions(run, 0, 1, first); }),
      InOne("N12", "a rank holds a layer of another stage", Verdict::kAmbiguousGlobalTokenMapping,
            Digests(Sized(1, 1, 1, 2)),
            [of_layers_0_and_1](RecordedRun* run) { GiveDecisions(run, 0, 1, of_layers_0_and_1); }),
      InOne("N13", "two data-parallel ranks own one request", Verdict::kAmbiguousGlobalTokenMapping,
            Digests(Sized(1, 1, 2, 1)),
            [second_request](RecordedRun* run) { GiveDecisions(run, 1, 0, second_request); }),
      InOne("N14", "a carrier lost a decision", Verdict::kIncompleteArtifact, Digests(Sized(2, 1, 1, 1)), LoseDecision),
      InOne("N15", "a decision too many and one too few", Verdict::kAmbiguousGlobalTokenMapping,
            Digests(Sized(1, 2, 1, 1)),
            [first](RecordedRun* run) {
              LoseDecision(run);
              GiveDecisions(run, 0, 1, first);
            }),
      InOne("S3", "sequence parallelism was cut before context parallelism", Verdict::kAmbiguousGlobalTokenMapping,
            swapped,
            [](RecordedRun* run) {
              run->layout["split_order"] = Json::array({"cp", "sp"});
            }),
      InOne("S4", "zigzag parts declared, contiguous ones run", Verdict::kAmbiguousGlobalTokenMapping,
            Digests(Sized(1, 2, 1, 1)), [](RecordedRun* run) { run->layout["cp_layout"] = "zigzag"; }),
      InOne("S5", "contiguous parts declared, zigzag ones run", Verdict::kAmbiguousGlobalTokenMapping, zigzag,
            [](RecordedRun* run) { run->layout["cp_layout"] = "contiguous"; }),
      InOne("S26", "longer stretches declared than were cut", Verdict::kAmbiguousGlobalTokenMapping, stretched,
            [](RecordedRun* run) { run->layout["cp_stretch"] = 4; }),
      InOne("S6", "a rank lacks a site of a token", Verdict::kMissingBoundaryTrace, Digests(Sized(2, 1, 1, 1)),
            [](RecordedRun* run) { run->ranks[1].bounds.erase(run->ranks[1].bounds.begin() + 20); }),
  };
}

std::vector<SelftestCase> ReplicaCases() {
  std::vector<SelftestCase> cases = {
      InOne("N16", "one rank's weight has another bit", Verdict::kRouteSemanticFingerprintMismatch,
            Digests(Sized(3, 1, 1, 1)),
            [](RecordedRun* run) {
              FlipDecisions(run, [](const RankRun& rank, const record::DecisionRecord& decision) {
                return rank.rank == 1 && decision.layer == 2 && decision.token == 3;
              });
            }),
      InOne("N17", "a decision follows the expert group", Verdict::kRouteSemanticFingerprintMismatch,
            Digests(Experts()),
            [](RecordedRun* run) {
              FlipDecisions(run, [run](const RankRun& rank, const record::DecisionRecord&) {
                return run->tokens.At(rank.rank)[static_cast<size_t>(Dimension::kEp)] == 1;
              });
            }),
      InOne("S7", "one rank's residual stream has another bit", Verdict::kBoundaryDigestMismatch,
            Digests(Sized(3, 1, 1, 1)), [](RecordedRun* run) { FlipBound(&run->ranks[2], Site::kMixer, 1, 4); }),
  };
  cases[0].dimension = "tp";
  cases[1].dimension = "ep";
  cases[2].dimension = "tp";
  return cases;
}

std::vector<SelftestCase> RouterCases() {
  const SyntheticOptions one = Sized(1, 1, 1, 1);
  const auto nan = [](RecordedRun* run) {
    for (RankRun& rank : run->ranks) {
      rank.routes.slots[1].weight = std::numeric_limits<float>::quiet_NaN();
      rank.decisions[0].digest = record::DecisionDigest(SyntheticDomain(), rank.routes.heads[0], rank.routes.Slots(0));
    }
  };
  const auto seal_decision = [](RecordedRun* run) {
    RankRun& rank = run->ranks[0];
    rank.decisions[0].digest = record::DecisionDigest(SyntheticDomain(), rank.routes.heads[0], rank.routes.Slots(0));
  };
  return {
      {"N30", "the same NaN on both sides", Verdict::kNonFinite, "",
       [one, nan] {
         std::vector<NamedFiles> runs = One(one, nan);
         runs.push_back(One(one, nan)[0]);
         return runs;
       }},
      InOne("S8", "the choice was made over a part of the experts", Verdict::kForbiddenLocalShardTopk, one,
            [](RecordedRun* run) { run->run["router"]["gate"]["experts"] = kSyntheticExperts / 2; }),
      InOne("S9", "the second expert scored more than the first", Verdict::kTopkOrderMismatch, one,
            [seal_decision](RecordedRun* run) {
              std::swap(run->ranks[0].routes.slots[0], run->ranks[0].routes.slots[1]);
              seal_decision(run);
            }),
      InOne("S10", "an expert that was not chosen scored more", Verdict::kTopkOrderMismatch, one,
            [](RecordedRun* run) { run->ranks[0].routes.heads[0].next = 2; }),
      InOne("S11", "of two that tie, the higher expert stands first", Verdict::kTieBreakPolicyMismatch, one,
            [seal_decision](RecordedRun* run) {
              const std::span<record::RouteSlot> slots = run->ranks[0].routes.Slots(0);
              slots[0].expert = 4;
              slots[1].expert = 1;
              slots[1].selection = slots[0].selection;
              seal_decision(run);
            }),
      InOne("S12", "an expert is chosen twice", Verdict::kInvalidDiscretePlan, one,
            [seal_decision](RecordedRun* run) {
              const std::span<record::RouteSlot> slots = run->ranks[0].routes.Slots(0);
              slots[1].expert = slots[0].expert;
              seal_decision(run);
            }),
      InOne("S30", "a rank chose among a part of the experts at a time", Verdict::kForbiddenLocalShardTopk, one,
            [](RecordedRun* run) { run->ranks[0].env["chosen_among"] = kSyntheticExperts - 1; }),
      InOne("S31", "a rank does not say among how many experts it chose", Verdict::kIncompleteArtifact, one,
            [](RecordedRun* run) { run->ranks[0].env.erase("chosen_among"); }),
      InOne("S13", "a decision is not what its digest says", Verdict::kRouteSemanticFingerprintMismatch, one,
            [](RecordedRun* run) { run->ranks[0].routes.slots[0].weight = 0.5F; }),
  };
}

std::vector<SelftestCase> ExecutionCases() {
  return {
      InOne("N27", "a dispatched row was never multiplied", Verdict::kExecutionMissing, Experts(),
            [](RecordedRun* run) { run->ranks[0].executions.erase(run->ranks[0].executions.begin() + 5); }),
      InOne("N28", "a row was multiplied twice", Verdict::kExecutionDuplicated, Experts(),
            [](RecordedRun* run) {
              std::vector<record::ExecuteRecord>& done = run->ranks[0].executions;
              const record::ExecuteRecord again = done[5];
              done.insert(done.begin() + 5, again);
            }),
      InOne("N29", "a row was multiplied in the slot beside its own", Verdict::kExecutionMisplaced, Experts(),
            [](RecordedRun* run) { run->ranks[0].executions[5].local_slot ^= 1; }),
  };
}

std::vector<SelftestCase> CollectiveCases() {
  const SyntheticOptions two = Digests(Sized(2, 1, 1, 1));
  const auto edited = [two](const std::string& name, const std::string& what, Verdict expected,
                            const std::function<void(Json*)>& edit) {
    return InOne(name, what, expected, two, [edit](RecordedRun* run) { edit(&run->ranks[1].collectives[3]); });
  };
  const SyntheticOptions shared = Digests(Sized(1, 2, 1, 1));
  SyntheticOptions dealt = two;
  dealt.sp = true;
  const auto gather = [](const std::string& name, const std::string& what, Verdict expected,
                         const SyntheticOptions& options, Site site, const std::function<void(Json*)>& edit) {
    return InOne(name, what, expected, options, [site, edit](RecordedRun* run) {
      for (Json& record : run->ranks[1].collectives) {
        if (record["site"] == record::SiteName(site)) return edit(&record);
      }
    });
  };
  return {
      edited("N22", "another algorithm ran than was configured, and nobody says why", Verdict::kSilentFallback,
             [](Json* record) { (*record)["actual"] = "two-shot"; }),
      edited("N23", "a field of a sum's record is gone", Verdict::kMissingProvenance,
             [](Json* record) { record->erase("accumulate"); }),
      edited("N24", "nobody says how a sum was observed", Verdict::kMissingProvenance,
             [](Json* record) { (*record)["source"] = ""; }),
      edited("N25", "no sum is recorded, and two ranks took part", Verdict::kMissingProvenance,
             [](Json* record) { (*record)["kind"] = "none"; }),
      {"N26",
       "one side adds in another type, and sums must be the same",
       Verdict::kReductionOrderMismatch,
       "",
       [two] {
         return Two(two, two, [](RecordedRun* run) {
           for (RankRun& rank : run->ranks) rank.collectives[3]["accumulate"] = "f32";
         });
       },
       {true}},
      InOne("S14", "a site has no record of its sum", Verdict::kMissingProvenance, two,
            [](RecordedRun* run) { run->ranks[1].collectives.erase(run->ranks[1].collectives.begin()); }),
      gather("S33", "nothing is recorded of what a rank shows its context group", Verdict::kMissingProvenance, shared,
             Site::kShown, [](Json* record) { (*record)["site"] = "elsewhere"; }),
      gather("S34", "nothing is recorded of what comes back from a delta net", Verdict::kMissingProvenance, shared,
             Site::kReturned, [](Json* record) { (*record)["site"] = "elsewhere"; }),
      gather("S35", "rows are dealt, and nobody says how they come together", Verdict::kMissingProvenance, dealt,
             Site::kChannelsNorm, [](Json* record) { (*record)["site"] = "elsewhere"; }),
      gather("S36", "rows are dealt to two ranks, and one took part", Verdict::kMissingProvenance, dealt, Site::kRouter,
             [](Json* record) {
               (*record)["ranks"] = Json::array({1});
               (*record)["kind"] = "none";
             }),
      gather("S37", "rows came together in another way than was configured, and nobody says why",
             Verdict::kSilentFallback, shared, Site::kShown, [](Json* record) { (*record)["actual"] = "ring"; }),
  };
}

std::vector<SelftestCase> FormCases() {
  const SyntheticOptions one = Digests(Sized(1, 1, 1, 1));
  const auto files = [one](const std::function<void(Files*)>& edit) {
    return [one, edit] {
      std::vector<NamedFiles> runs = One(one, [](RecordedRun*) {});
      edit(&runs[0].files);
      return runs;
    };
  };
  const auto knob = [](const char* key, const Json& value) {
    return [key = std::string(key), value](RecordedRun* run) { run->run["knobs"][0][key] = value; };
  };
  return {
      InOne("N32", "a setting that is called applied was read back otherwise", Verdict::kKnobNotApplied, one,
            knob("actual", 5)),
      InOne("S32", "a setting that fell back was read back as planned", Verdict::kKnobNotApplied, one,
            knob("status", "fallback")),
      InOne("N33", "a setting that nobody knows is called applied", Verdict::kKnobNotApplied, one,
            knob("path", "engine.luck")),
      InOne("N34", "more is claimed than there is evidence for", Verdict::kCorruptArtifact, one,
            [](RecordedRun* run) { run->run["claims"].push_back("execution"); }),
      InOne("S15", "the split order is not declared", Verdict::kLayoutUndeclared, one,
            [](RecordedRun* run) { run->layout.erase("split_order"); }),
      InOne("S16", "a file of another version", Verdict::kSchemaMismatch, one,
            [](RecordedRun* run) { run->run["schema"] = "trivet.run.v0"; }),
      {"S17", "a run that did not come to its end", Verdict::kIncompleteArtifact, "",
       files([](Files* all) { all->erase("COMPLETE"); })},
      {"S18", "a sealed file is gone", Verdict::kIncompleteArtifact, "",
       files([](Files* all) { all->erase(RankPath(0, "bounds.bin")); })},
      {"S19", "a file is cut short", Verdict::kCorruptArtifact, "",
       files([](Files* all) { (*all)[RankPath(0, "bounds.bin")].resize(100); })},
      {"S20", "a file of another run", Verdict::kCorruptArtifact, "",
       files([](Files* all) { (*all)[RankPath(1, "env.json")] = "{}"; })},
  };
}

std::vector<SelftestCase> CrossCases() {
  const SyntheticOptions one = Digests(Sized(1, 1, 1, 1)), parts = Digests(Sized(1, 2, 1, 1));
  SyntheticOptions longer = one, shorter = one;
  ++longer.lengths[1];
  --shorter.lengths[1];
  const auto second_part = [](RecordedRun* run) {
    FlipDecisions(run, [](const RankRun& rank, const record::DecisionRecord&) { return rank.rank == 1; });
  };
  const auto padded = [](RecordedRun* run) {
    RankRun& rank = run->ranks[0];
    record::DecisionRecord hidden = rank.decisions[2];
    hidden.token = record::kPadding;
    rank.decisions[2].digest.low ^= 1;
    rank.decisions.insert(rank.decisions.begin(), hidden);
  };
  const auto cross = [](const std::string& name, const std::string& what, Verdict expected,
                        const std::string& dimension, const std::function<std::vector<NamedFiles>()>& make) {
    return SelftestCase{name, what, expected, dimension, make};
  };
  return {
      cross("N18", "all decisions of the second part of the sequence differ",
            Verdict::kRouteSemanticFingerprintMismatch, "cp",
            [one, parts, second_part] { return Two(one, parts, second_part); }),
      cross("N19", "the second run has a decision too many", Verdict::kAmbiguousGlobalTokenMapping, "",
            [one, longer] { return Two(one, longer, [](RecordedRun*) {}); }),
      cross("N20", "the second run lacks a decision", Verdict::kIncompleteArtifact, "",
            [one, shorter] { return Two(one, shorter, [](RecordedRun*) {}); }),
      cross("N21", "the second run names another router", Verdict::kIdentityDrift, "",
            [one] { return Two(one, one, [](RecordedRun* run) { run->run["router"]["mode"] = "softmax of all"; }); }),
      cross("N31", "a padding row hides a changed decision", Verdict::kRouteSemanticFingerprintMismatch, "",
            [one, padded] { return Two(one, one, padded); }),
      cross(
          "S21", "the residual stream differs", Verdict::kBoundaryDigestMismatch, "",
          [one] { return Two(one, one, [](RecordedRun* run) { FlipBound(&run->ranks[0], Site::kChannels, 1, 2); }); }),
      cross("S22", "logits differ", Verdict::kLogitsBytesMismatch, "",
            [one] { return Two(one, one, [](RecordedRun* run) { FlipBound(&run->ranks[0], Site::kLogits, 4, 5); }); }),
      cross("S23", "another token was sampled", Verdict::kSampledTokenDiverged, "",
            [one] { return Two(one, one, [](RecordedRun* run) { run->run["requests"][0]["sampled"][2] = 7777; }); }),
      cross("S24", "runs of different arithmetic", Verdict::kIdentityDrift, "",
            [one] {
              return Two(one, one, [](RecordedRun* run) { run->run["identity"]["contract"] = "trivet.fast.v1"; });
            }),
      cross("S25", "runs of different prompts", Verdict::kIdentityDrift, "",
            [one] { return Two(one, one, [](RecordedRun* run) { run->run["requests"][1]["prompt"][0] = 99; }); }),
  };
}

// Several changes, one after the other.
Edit AllOf(const std::vector<Edit>& edits) {
  return [edits](RecordedRun* run) {
    for (const Edit& edit : edits) edit(run);
  };
}

void UnreadSetting(RecordedRun* run) { run->run["knobs"][0]["actual"] = 5; }

void Disagree(RecordedRun* run) {
  FlipDecisions(run, [](const RankRun& rank, const record::DecisionRecord&) { return rank.rank == 1; });
}

// Of one rank's executions, each at a place of its own.
void Misplace(RecordedRun* run) { run->ranks[0].executions[9].local_slot ^= 1; }
void Skip(RecordedRun* run) { run->ranks[0].executions.erase(run->ranks[0].executions.begin() + 7); }
void Repeat(RecordedRun* run) {
  std::vector<record::ExecuteRecord>& done = run->ranks[0].executions;
  const record::ExecuteRecord again = done[3];
  done.insert(done.begin() + 3, again);
}

// Two or three defects, of which the gate that comes first must speak.
std::vector<SelftestCase> PrecedenceCases() {
  const SyntheticOptions two = Digests(Sized(2, 1, 1, 1));
  const auto pair = [](const std::string& name, const std::string& what, Verdict expected,
                       const SyntheticOptions& options,
                       const std::vector<Edit>& edits) { return InOne(name, what, expected, options, AllOf(edits)); };
  return {
      pair("P1", "a setting that did not apply, and an older map", Verdict::kKnobNotApplied, Experts(),
           {UnreadSetting, Version}),
      pair("P2", "two experts in one slot, and a slot with another expert", Verdict::kInvalidPlacementMap, Experts(),
           {SharedSlot, SwapSlotDigests}),
      pair("P3", "a slot with another expert, and a rank of another group", Verdict::kSlotWeightDigestMismatch,
           Experts(), {SwapSlotDigests, OtherGroup}),
      pair("P4", "a missing rank, and a decision too few", Verdict::kMissingRank, Digests(Sized(3, 1, 1, 1)),
           {WithoutRank, LoseDecision}),
      pair("P5", "a decision too few, and ranks that disagree", Verdict::kIncompleteArtifact, two,
           {LoseDecision, Disagree}),
      pair("P6", "ranks that disagree, and a choice among a part of the experts",
           Verdict::kRouteSemanticFingerprintMismatch, two,
           {Disagree, [](RecordedRun* run) { run->ranks[0].env["chosen_among"] = 1; }}),
      pair("P7", "multiplied in another slot, never, and twice", Verdict::kExecutionMisplaced, Experts(),
           {Misplace, Skip, Repeat}),
      pair("P8", "never multiplied, and another one twice", Verdict::kExecutionMissing, Experts(), {Skip, Repeat}),
      pair("P9", "multiplied twice, and a sum without a source", Verdict::kExecutionDuplicated, Experts(),
           {Repeat, [](RecordedRun* run) { run->ranks[0].collectives[0]["source"] = ""; }}),
      pair("P10", "another algorithm that nobody explains, and a later record with a field missing",
           Verdict::kMissingProvenance, two,
           {[](RecordedRun* run) { run->ranks[0].collectives[1]["actual"] = "two-shot"; },
            [](RecordedRun* run) { run->ranks[0].collectives[5].erase("accumulate"); }}),
      {"P11", "another router, and decisions that differ", Verdict::kIdentityDrift, "",
       [two] {
         return Two(two, two, [](RecordedRun* run) {
           run->run["router"]["mode"] = "softmax of all";
           FlipDecisions(run, [](const RankRun&, const record::DecisionRecord&) { return true; });
         });
       }},
      {"P12", "a row of an earlier layer and a decision of a later one differ", Verdict::kBoundaryDigestMismatch, "",
       [two] {
         return Two(two, two, [](RecordedRun* run) {
           for (RankRun& rank : run->ranks) FlipBound(&rank, Site::kMixer, 1, 4);
           FlipDecisions(run, [](const RankRun&, const record::DecisionRecord& one) { return one.layer == 2; });
         });
       }},
  };
}

}  // namespace

std::vector<SelftestCase> Negatives() {
  std::vector<SelftestCase> all;
  for (auto* make : {PlacementCases, RankCases, OwnershipCases, ReplicaCases, RouterCases, ExecutionCases,
                     CollectiveCases, FormCases, CrossCases, PrecedenceCases}) {
    for (SelftestCase& one : make()) all.push_back(std::move(one));
  }
  return all;
}

}  // namespace trivet::proof
