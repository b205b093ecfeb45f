// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "proof/gates.h"
#include "record/run_log.h"

namespace trivet::proof {
namespace {

using record::DispatchRecord;
using record::ExecuteRecord;
using record::RouteSlot;
using record::Site;

// What is wrong with one decision as such.
struct Defect {
  Verdict verdict = Verdict::kPass;
  std::string text;
};

// Experts that were forced stand in their order, and a better one may have been left out.
Defect OrderDefect(const record::RouteHead& head, std::span<const RouteSlot> slots, bool forced) {
  for (size_t i = 0; i + 1 < slots.size(); ++i) {
    const RouteSlot &a = slots[i], &b = slots[i + 1];
    if (a.selection < b.selection) {
      return {Verdict::kTopkOrderMismatch,
              fmt::format("slot {} was chosen by {}, the one behind it by {}", i, a.selection, b.selection)};
    }
    if (a.selection == b.selection && a.expert > b.expert) {
      return {Verdict::kTieBreakPolicyMismatch,
              fmt::format("experts {} and {} tie, and the higher one stands first", a.expert, b.expert)};
    }
  }
  if (!forced && !slots.empty() && slots.back().selection < head.next) {
    return {Verdict::kTopkOrderMismatch, fmt::format("the last one was chosen by {}, and one that was not has {}",
                                                     slots.back().selection, head.next)};
  }
  return {};
}

Defect SlotDefect(std::span<const RouteSlot> slots, int64_t experts) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].expert >= experts) {
      return {Verdict::kInvalidDiscretePlan, fmt::format("slot {} names expert {} of {}", i, slots[i].expert, experts)};
    }
    for (size_t j = 0; j < i; ++j) {
      if (slots[i].expert == slots[j].expert) {
        return {Verdict::kInvalidDiscretePlan, fmt::format("expert {} is there twice", slots[i].expert)};
      }
    }
  }
  return {};
}

bool Finite(std::span<const RouteSlot> slots) {
  return std::all_of(slots.begin(), slots.end(), [](const RouteSlot& slot) {
    return std::isfinite(slot.weight) && std::isfinite(slot.score) && std::isfinite(slot.selection);
  });
}

Finding AtDecision(const RankRun& rank, Verdict verdict, const Decision& decision, const std::string& text) {
  Json where = PlaceJson(decision.layer, Site::kRoute, decision.token);
  where["rank"] = rank.rank;
  return Found(
      verdict,
      fmt::format("rank {}, layer {} route, {}: {}", rank.rank, decision.layer, TokenName(decision.token), text),
      std::move(where));
}

// The gate saw the whole hidden width and all experts.
Gate CheckRouterShape(const RecordedRun& run) {
  const Json &router = Member(run.run, "router"), &gate = Member(router, "gate");
  if (Member(gate, "sharded") != false || Member(gate, "experts") != Member(router, "experts")) {
    return Found(Verdict::kForbiddenLocalShardTopk, "run.json: the choice was made over a part of the experts",
                 {{"gate", gate}});
  }
  if (Member(gate, "hidden") != Member(run.run, "hidden")) {
    return Found(Verdict::kGateShardingMismatch, "run.json: the router saw a part of the hidden width",
                 {{"gate", gate}});
  }
  return std::nullopt;
}

// And so did every rank that chose, as it noted by itself.
Gate CheckChosenAmong(const RecordedRun& run, const RankRun& rank) {
  const Json &among = Member(rank.env, "chosen_among"), &experts = Member(Member(run.run, "router"), "experts");
  if (among == experts) return std::nullopt;
  if (!among.is_number_integer()) {
    if (rank.decisions.empty()) return std::nullopt;  // one that keeps no row may have chosen all the same
    return Found(Verdict::kIncompleteArtifact,
                 fmt::format("rank {}: does not say among how many experts it chose", rank.rank),
                 {{"rank", rank.rank}});
  }
  return Found(
      Verdict::kForbiddenLocalShardTopk,
      fmt::format("rank {}: chose among {} experts at a time, of {}", rank.rank, DumpJson(among), DumpJson(experts)),
      {{"rank", rank.rank}, {"chosen_among", among}, {"experts", experts}});
}

Gate CheckRoutes(const RecordedRun& run, const RankRun& rank) {
  const Json& experts = Member(Member(run.run, "router"), "experts");
  const Json& contract = Member(Member(run.run, "identity"), "contract");
  if (!experts.is_number_integer() || !contract.is_string()) {
    return Found(Verdict::kSchemaMismatch, "run.json: says neither experts nor contract");
  }
  const Digest domain = Hash128(contract.get<std::string>());
  const bool may_force = Member(run.run, "routes").is_object();
  auto digest = rank.decisions.begin();
  const auto skip_padding = [&] {
    while (digest != rank.decisions.end() && digest->token == record::kPadding) ++digest;
  };
  for (size_t i = 0; i < rank.routes.heads.size(); ++i) {
    const record::RouteHead& head = rank.routes.heads[i];
    const std::span<const RouteSlot> slots = rank.routes.Slots(i);
    const Decision decision{head.layer, head.token};
    if (head.token == record::kPadding) continue;
    skip_padding();
    if (digest == rank.decisions.end() || Decision{digest->layer, digest->token} != decision) {
      return AtDecision(rank, Verdict::kIncompleteArtifact, decision, "the decision has no digest");
    }
    const bool forced = (head.flags & record::kForced) != 0;
    if (forced && !may_force) {
      return AtDecision(rank, Verdict::kInvalidDiscretePlan, decision,
                        "experts were forced on it, and run.json knows nothing of that");
    }
    Defect defect = OrderDefect(head, slots, forced);
    if (defect.verdict == Verdict::kPass) defect = SlotDefect(slots, experts.get<int64_t>());
    if (defect.verdict == Verdict::kPass && !Finite(slots)) defect = {Verdict::kNonFinite, "a number is not finite"};
    if (defect.verdict == Verdict::kPass && record::DecisionDigest(domain, head, slots) != digest->digest) {
      defect = {Verdict::kRouteSemanticFingerprintMismatch, "its digest is another decision's"};
    }
    if (defect.verdict != Verdict::kPass) return AtDecision(rank, defect.verdict, decision, defect.text);
    ++digest;
  }
  skip_padding();
  if (digest == rank.decisions.end()) return std::nullopt;
  return AtDecision(rank, Verdict::kIncompleteArtifact, {digest->layer, digest->token}, "the digest has no decision");
}

template <class Record>
auto KeyOf(const Record& record) {
  return std::tuple(record.layer, record.token, record.slot, record.step);
}

// What a rank was to multiply: of all ranks that differ from it only where experts are shared out.
std::vector<DispatchRecord> OwedTo(const RecordedRun& run, int64_t rank) {
  const TokenLayout& layout = run.tokens;
  const Coordinates at = layout.At(rank);
  const auto meets = [&](int64_t other) {
    const Coordinates from = layout.At(other);
    for (size_t d = 0; d < kDimensions; ++d) {
      const auto dimension = static_cast<Dimension>(d);
      const bool free = dimension == Dimension::kEp ||
                        std::find(layout.expert_group_over.begin(), layout.expert_group_over.end(), dimension) !=
                            layout.expert_group_over.end();
      if (!free && from[d] != at[d]) return false;
    }
    return true;
  };
  std::vector<DispatchRecord> owed;
  for (const RankRun& other : run.ranks) {
    if (!meets(other.rank)) continue;
    for (const DispatchRecord& row : other.dispatches) {
      if (row.ep_rank == at[static_cast<size_t>(Dimension::kEp)]) owed.push_back(row);
    }
  }
  std::sort(owed.begin(), owed.end(),
            [](const DispatchRecord& a, const DispatchRecord& b) { return KeyOf(a) < KeyOf(b); });
  const auto same = [](const DispatchRecord& a, const DispatchRecord& b) { return KeyOf(a) == KeyOf(b); };
  owed.erase(std::unique(owed.begin(), owed.end(), same), owed.end());
  return owed;
}

template <class Record>
Finding AtSlot(const RankRun& rank, Verdict verdict, const Record& record, const std::string& text) {
  Json where = PlaceJson(record.layer, Site::kRoute, record.token);
  where.update({{"rank", rank.rank}, {"slot", record.slot}, {"step", record.step}});
  return Found(verdict,
               fmt::format("rank {}, layer {}, {}, slot {}: {}", rank.rank, record.layer, TokenName(record.token),
                           record.slot, text),
               std::move(where));
}

// The findings of one rank, each kind's first.
struct ExecutionFindings {
  Gate misplaced, missing, duplicated;
};

ExecutionFindings Execute(const RecordedRun& run, const RankRun& rank) {
  ExecutionFindings found;
  const std::vector<DispatchRecord> owed = OwedTo(run, rank.rank);
  auto done = rank.executions.begin();
  const auto misplace = [&](const ExecuteRecord& record, const std::string& text) {
    if (!found.misplaced) found.misplaced = AtSlot(rank, Verdict::kExecutionMisplaced, record, text);
  };
  for (const DispatchRecord& row : owed) {
    for (; done != rank.executions.end() && KeyOf(*done) < KeyOf(row); ++done) {
      misplace(*done, fmt::format("was multiplied in slot {}, and dispatched elsewhere", done->local_slot));
    }
    int64_t times = 0;
    for (; done != rank.executions.end() && KeyOf(*done) == KeyOf(row); ++done, ++times) {
      if (done->local_slot == row.local_slot) continue;
      misplace(*done, fmt::format("expert {} was dispatched to slot {}, and multiplied in slot {}", row.expert,
                                  row.local_slot, done->local_slot));
    }
    if (times == 0 && !found.missing) {
      found.missing = AtSlot(rank, Verdict::kExecutionMissing, row,
                             fmt::format("expert {} was dispatched, and never multiplied", row.expert));
    }
    if (times > 1 && !found.duplicated) {
      found.duplicated = AtSlot(rank, Verdict::kExecutionDuplicated, row,
                                fmt::format("expert {} was multiplied {} times", row.expert, times));
    }
  }
  for (; done != rank.executions.end(); ++done) {
    misplace(*done, fmt::format("was multiplied in slot {}, and dispatched elsewhere", done->local_slot));
  }
  return found;
}

// Every slot of every decision was dispatched.
Gate CheckDispatched(const RankRun& rank) {
  size_t at = 0;
  for (size_t i = 0; i < rank.routes.heads.size(); ++i) {
    const record::RouteHead& head = rank.routes.heads[i];
    for (uint16_t slot = 0; slot < rank.routes.top_k && head.token != record::kPadding; ++slot) {
      const auto key = std::tuple(head.layer, head.token, slot);
      const auto less = [&](const DispatchRecord& row) { return std::tuple(row.layer, row.token, row.slot) < key; };
      while (at < rank.dispatches.size() && less(rank.dispatches[at])) ++at;
      const bool there = at < rank.dispatches.size() && std::tuple(rank.dispatches[at].layer, rank.dispatches[at].token,
                                                                   rank.dispatches[at].slot) == key;
      if (there && rank.dispatches[at].expert == rank.routes.Slots(i)[slot].expert) continue;
      return AtDecision(rank, Verdict::kIncompleteArtifact, {head.layer, head.token},
                        fmt::format("slot {} was chosen, and not dispatched as chosen", slot));
    }
  }
  return std::nullopt;
}

}  // namespace

Gate CheckRouter(const RecordedRun& run) {
  if (run.moe_layers.empty()) return std::nullopt;
  if (Gate gate = CheckRouterShape(run)) return gate;
  for (const RankRun& rank : run.ranks) {
    if (Gate gate = CheckChosenAmong(run, rank)) return gate;
    if (run.level >= record::Level::kRows) {
      if (Gate gate = CheckRoutes(run, rank)) return gate;
    }
    for (const record::DecisionRecord& decision : rank.decisions) {
      if (decision.finite == 1 || decision.token == record::kPadding) continue;
      return AtDecision(rank, Verdict::kNonFinite, {decision.layer, decision.token}, "a number is not finite");
    }
  }
  return std::nullopt;
}

Gate CheckExecution(const RecordedRun& run) {
  if (run.level < record::Level::kFull) return std::nullopt;
  for (const RankRun& rank : run.ranks) {
    if (Gate gate = CheckDispatched(rank)) return gate;
  }
  ExecutionFindings first;
  for (const RankRun& rank : run.ranks) {
    ExecutionFindings found = Execute(run, rank);
    if (!first.misplaced) first.misplaced = std::move(found.misplaced);
    if (!first.missing) first.missing = std::move(found.missing);
    if (!first.duplicated) first.duplicated = std::move(found.duplicated);
  }
  if (first.misplaced) return first.misplaced;
  return first.missing ? first.missing : first.duplicated;
}

}  // namespace trivet::proof
