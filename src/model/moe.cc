// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "model/layers.h"
#include "model/planted_faults.h"

namespace trivet::model {
namespace {

kernels::RouterKind KernelRouter(plan::RouterKind kind) {
  switch (kind) {
    case plan::RouterKind::kSoftmaxChosen:
      return kernels::RouterKind::kSoftmaxChosen;
    case plan::RouterKind::kSoftmaxAll:
      return kernels::RouterKind::kSoftmaxAll;
    case plan::RouterKind::kSigmoid:
      break;
  }
  return kernels::RouterKind::kSigmoid;
}

// Pairs of a token and a chosen expert, sorted by the expert's slot on this rank (kernels/expert_gemm.h).
struct Pairs {
  int64_t count = 0;
  std::span<float> weights;                    // [P], by pair
  std::span<int32_t> order, slot_at, offsets;  // [P], [P], [S + 1]
};

// Where the choice is kept for the log: nowhere without one.
kernels::Route::Record RecordOf(const Runtime& runtime, int64_t tokens) {
  if (runtime.log == nullptr) return {};
  const int64_t pairs = tokens * runtime.geometry.moe.top_k;
  device::Workspace& workspace = runtime.workspace;
  return {workspace.Take<int32_t>(pairs).data(), workspace.Take<float>(pairs).data(),
          workspace.Take<float>(pairs + tokens).data()};
}

// Notes what was chosen.
//   among  the fewest experts that a choice was made among
void LogChoice(const Runtime& runtime, int64_t layer, int64_t among, const kernels::Route::Args& args) {
  if (runtime.log == nullptr) return;
  const kernels::Route::Record& record = args.record;
  const auto pairs = static_cast<size_t>(args.end * args.top_k);
  std::vector<int32_t> experts;
  std::vector<float> host[3];
  runtime.log->Route(
      layer,
      {runtime.OnHost(std::span<const int32_t>(record.experts, pairs), &experts).data(),
       runtime.OnHost(std::span<const float>(args.weights, pairs), &host[0]).data(),
       runtime.OnHost(std::span<const float>(record.scores, pairs), &host[1]).data(),
       runtime.OnHost(std::span<const float>(record.choice, pairs + static_cast<size_t>(args.end)), &host[2]).data(),
       args.forced, args.other, among});
}

// Notes the pairs that this rank multiplies: what the kernels are about to be given.
void LogExecution(const Runtime& runtime, int64_t layer, const Pairs& pairs) {
  if (runtime.log == nullptr) return;
  std::vector<int32_t> host[3];
  const auto on_host = [&](std::span<const int32_t> values, size_t i) { return runtime.OnHost(values, &host[i]); };
  const auto count = static_cast<size_t>(on_host(pairs.offsets, 0).back());
  runtime.log->Execute(layer, on_host(pairs.order, 1).first(count), on_host(pairs.slot_at, 2).first(count));
}

//   slot_of  [E] local slot of each expert, or -1
Pairs Route(const Runtime& runtime, const MoeWeights& weights, int64_t layer, const int32_t* slot_of,
            std::span<const float> logits) {
  const int64_t tokens = static_cast<int64_t>(logits.size()) / weights.router.n;
  const plan::MoeGeometry& moe = runtime.geometry.moe;
  device::Workspace& workspace = runtime.workspace;
  Pairs pairs;
  pairs.count = tokens * moe.top_k;
  pairs.weights = workspace.Take<float>(pairs.count);
  pairs.order = workspace.Take<int32_t>(pairs.count);
  pairs.slot_at = workspace.Take<int32_t>(pairs.count);
  pairs.offsets = workspace.Take<int32_t>(weights.experts.slots + 1);
  const std::span<int32_t> slots = workspace.Take<int32_t>(pairs.count);
  kernels::Route::Args args;
  args.logits = logits.data();
  args.logits_stride = weights.router.n;
  args.experts_total = moe.experts;
  args.top_k = moe.top_k;
  args.experts = slots.data();
  args.weights = pairs.weights.data();
  args.end = tokens;
  args.kind = KernelRouter(moe.router.kind);
  args.correction = weights.correction;
  args.groups = moe.router.groups;
  args.groups_kept = moe.router.groups_kept;
  args.renormalise = moe.router.renormalise;
  args.scaling = static_cast<float>(moe.router.scaling);
  args.slot_of = slot_of;
  args.record = RecordOf(runtime, tokens);
  std::vector<int32_t> other(runtime.forced == nullptr ? 0 : static_cast<size_t>(tokens));
  if (runtime.forced != nullptr) {
    args.forced = runtime.forced->Of(layer).data();
    args.other = other.data();
  }
  int64_t among = args.experts_total;
  if (runtime.Planted(comm::FaultKind::kLocalTopK, layer)) {
    among = ChooseByShares(runtime, args);
  } else {
    runtime.kernels.route->run(args);
  }
  if (runtime.forced != nullptr) runtime.forced->Count(layer, other);
  LogChoice(runtime, layer, among, args);
  runtime.kernels.group_pairs->run({slots.data(), pairs.count, weights.experts.slots, pairs.order.data(),
                                    pairs.slot_at.data(), pairs.offsets.data()});
  return pairs;
}

// Products of the pairs with the matrices of their experts: `args` says from where to where.
void MultiplyPairs(const Runtime& runtime, const Pairs& pairs, const std::vector<ExpertMatrices>& tables,
                   const kernels::ExpertGemm::Args& args) {
  for (const ExpertMatrices& table : tables) {
    kernels::ExpertGemm::Args run = args;
    run.pairs = pairs.count;
    run.top_k = runtime.geometry.moe.top_k;
    run.order = pairs.order.data();
    run.slot_at = pairs.slot_at.data();
    run.offsets = pairs.offsets.data();
    run.w = table.w;
    run.w_device = table.device;
    if (run.y != nullptr) run.y += table.row;
    if (run.sums_fixed != nullptr) run.sums_fixed += table.row;
    if (run.sums_fast != nullptr) run.sums_fast += table.row;
    run.numerics = run.sums_fast != nullptr ? kernels::Numerics::kFast : runtime.numerics;
    run.flags = runtime.tables.flags;
    run.gemm = runtime.kernels.gemm;
    const int64_t tiles = (table.n + kernels::kTileRows - 1) / kernels::kTileRows;
    // As in Runtime::RunGemm: with fewer pairs than experts most experts have one row.
    const int64_t group = pairs.count < static_cast<int64_t>(table.w.size()) ? Runtime::kTilesOfRow : 1;
    runtime.Parallel((tiles + group - 1) / group, pairs.count * table.n * table.k, [&](int64_t begin, int64_t end) {
      kernels::ExpertGemm::Args part = run;
      part.tile_begin = begin * group;
      part.tile_end = std::min(end * group, tiles);
      runtime.kernels.expert_gemm->run(part);
    });
  }
}

// Adds the outputs of the experts in float32, those of the last slot first: the planted fault of a sum in the order in
// which its parts come.
void CombineAsTheyCome(const Runtime& runtime, const Pairs& pairs, const std::vector<ExpertMatrices>& tables,
                       kernels::ExpertGemm::Args args, const Sums& sums) {
  std::vector<float> total(std::max(sums.fixed.size(), sums.fast.size()));
  args.sums_fixed = nullptr;
  args.sums_fast = total.data();
  std::vector<int32_t> offsets(pairs.offsets.size());
  for (size_t slot = offsets.size() - 1; slot-- > 0;) {
    for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = pairs.offsets[i <= slot ? slot : slot + 1];
    Pairs one = pairs;
    one.offsets = offsets;
    MultiplyPairs(runtime, one, tables, args);
  }
  uint32_t flags = 0;
  for (size_t i = 0; i < sums.fixed.size(); ++i) sums.fixed[i] += kernels::ToGrid(total[i], &flags);
  for (size_t i = 0; i < sums.fast.size(); ++i) sums.fast[i] += total[i];
}

void RoutedExperts(const Runtime& runtime, const ExpertWeights& experts, const Pairs& pairs, int64_t layer,
                   std::span<const float> x, const Sums& sums) {
  const int64_t hidden = runtime.geometry.hidden, width = experts.width;
  const std::span<float> gate_up = runtime.workspace.Take<float>(pairs.count * 2 * width);  // [P, 2F]
  const std::span<float> act = runtime.workspace.Take<float>(pairs.count * width);          // [P, F]
  kernels::ExpertGemm::Args in;
  in.x = x.data();
  in.x_stride = hidden;
  in.y = gate_up.data();
  in.y_stride = 2 * width;
  MultiplyPairs(runtime, pairs, experts.gate_up, in);
  if (experts.gate_up_bias != nullptr) {
    runtime.kernels.add_bias->run(
        {gate_up.data(), 2 * width, experts.gate_up_bias, 2 * width, 0, pairs.count, pairs.slot_at.data()});
  }
  kernels::GatedAct::Args activate = Activate(runtime, gate_up.data(), width, act.data());
  activate.count = pairs.offsets.data() + experts.slots;
  runtime.RunParallel(*runtime.kernels.gated_act, activate, pairs.count, pairs.count * width * Runtime::kElementWork);
  kernels::ExpertGemm::Args out;
  out.x = act.data();
  out.x_stride = width;
  out.sums_fixed = sums.fixed.empty() ? nullptr : sums.fixed.data();
  out.sums_fast = sums.fast.empty() ? nullptr : sums.fast.data();
  out.y_stride = hidden;
  out.weights = pairs.weights.data();
  if (runtime.Planted(comm::FaultKind::kCombineOrder, layer)) {
    CombineAsTheyCome(runtime, pairs, experts.down, out, sums);
  } else {
    MultiplyPairs(runtime, pairs, experts.down, out);
  }
  out.x = runtime.tables.one;
  out.x_stride = 0;
  MultiplyPairs(runtime, pairs, experts.down_bias, out);
}

// The router's logits of all rows: [T, columns], of which every rank computes those that it keeps.
Result<std::span<const float>> RouterLogits(const Runtime& runtime, const MoeWeights& weights, int64_t layer,
                                            const KeptRows& rows) {
  const int64_t experts = runtime.geometry.moe.experts, columns = weights.router.n;
  const int64_t kept = static_cast<int64_t>(rows.kept.size()) / runtime.geometry.hidden;
  const std::span<float> logits = runtime.workspace.Take<float>(kept * columns);
  runtime.Multiply(rows.kept, kept, weights.router, logits);
  if (weights.router_bias != nullptr) {
    runtime.kernels.add_bias->run({logits.data(), columns, weights.router_bias, experts, 0, kept});
  }
  runtime.LogRows(record::Site::kRouter, layer, logits);
  if (runtime.Planted(comm::FaultKind::kRouterUlp, layer) && kept > 0) {
    NudgeLogit(runtime, logits.first(static_cast<size_t>(experts)));
  }
  TRY_ASSIGN(const comm::RowsView all, runtime.JoinRows({record::Site::kRouter, layer}, logits, columns, rows.keepers,
                                                        runtime.JoinedRows(columns, rows.keepers)));
  const int64_t tokens = static_cast<int64_t>(rows.all.size()) / runtime.geometry.hidden;
  return std::span(all.data, static_cast<size_t>(tokens * columns));
}

}  // namespace

Status MoeLayer(const Runtime& runtime, const MoeWeights& weights, int64_t layer, const KeptRows& rows,
                const Sums& sums) {
  const device::Workspace::Frame frame(&runtime.workspace);
  const plan::MoeGeometry& moe = runtime.geometry.moe;
  const plan::Partials& partial = runtime.layout.partial;
  const std::span<const float> x = rows.all;
  const int64_t tokens = static_cast<int64_t>(x.size()) / runtime.geometry.hidden;
  const int64_t columns = weights.router.n;  // E, and the shared expert's gate behind them
  TRY_ASSIGN(const std::span<const float> logits, RouterLogits(runtime, weights, layer, rows));

  // The sum is one: when only one of the two kinds is cut, the whole one comes from rank 0 alone.
  const bool first = runtime.comm.rank() == 0;
  const bool computes = weights.experts.width > 0 && (partial.experts || !partial.shared || first);
  // A rank that computes none chooses for its record alone: all have to choose alike.
  if (computes || runtime.log != nullptr || runtime.forced != nullptr) {
    const std::optional<MovedExperts> moved = MoveMidStep(runtime, layer, weights.experts);
    const Pairs pairs = Route(runtime, weights, layer, moved ? moved->slot_of.data() : runtime.tables.slot_of, logits);
    if (computes) {
      LogExecution(runtime, layer, pairs);
      RoutedExperts(runtime, moved ? moved->experts : weights.experts, pairs, layer, x, sums);
    }
  }
  if (moe.shared_width > 0 && (partial.shared || !partial.experts || first)) {
    if (!moe.shared_gate) {
      MlpLayer(runtime, weights.shared, x, tokens, nullptr, sums);
      return {};
    }
    const std::span<float> gates = runtime.workspace.Take<float>(tokens);
    runtime.kernels.map->run(
        {kernels::MapFunction::kSigmoid, 0, logits.data() + moe.experts, columns, gates.data(), 0, tokens});
    MlpLayer(runtime, weights.shared, x, tokens, gates.data(), sums);
  }
  return {};
}

}  // namespace trivet::model
