// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/elementary.h"
#include "model/layers.h"

namespace trivet::model {
namespace {

// The tokens routed to one expert, and their weights.
struct Routed {
  std::span<int32_t> tokens;
  std::span<float> weights;
};

// Picks the tokens of `expert` from the routing of all, in ascending order.
Routed TokensOf(const Runtime& runtime, std::span<const int32_t> experts, std::span<const float> weights,
                int64_t expert) {
  const auto top_k = runtime.geometry.moe.top_k;
  const auto tokens = static_cast<int64_t>(experts.size()) / top_k;
  Routed routed{runtime.workspace.Take<int32_t>(tokens), runtime.workspace.Take<float>(tokens)};
  size_t count = 0;
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] != expert) continue;
    routed.tokens[count] = static_cast<int32_t>(static_cast<int64_t>(i) / top_k);
    routed.weights[count++] = weights[i];
  }
  return {routed.tokens.first(count), routed.weights.first(count)};
}

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

// Experts and weights of every token, [T, top_k] each.
void Route(const Runtime& runtime, const float* correction, std::span<const float> logits, std::span<int32_t> experts,
           std::span<float> weights) {
  const plan::MoeGeometry& moe = runtime.geometry.moe;
  const auto tokens = static_cast<int64_t>(experts.size()) / moe.top_k;
  if (tokens == 0) return;
  kernels::Route::Args args;
  args.logits = logits.data();
  args.logits_stride = static_cast<int64_t>(logits.size()) / tokens;
  args.experts_total = moe.experts;
  args.top_k = moe.top_k;
  args.experts = experts.data();
  args.weights = weights.data();
  args.end = tokens;
  args.kind = KernelRouter(moe.router.kind);
  args.correction = correction;
  args.groups = moe.router.groups;
  args.groups_kept = moe.router.groups_kept;
  args.renormalise = moe.router.renormalise;
  args.scaling = static_cast<float>(moe.router.scaling);
  runtime.kernels.route->run(args);
}

}  // namespace

void MoeLayer(const Runtime& runtime, const MoeWeights& weights, std::span<const float> x, const Sums& sums) {
  const device::Workspace::Frame frame(&runtime.workspace);
  const plan::MoeGeometry& moe = runtime.geometry.moe;
  const plan::Partials& partial = runtime.layout.partial;
  const int64_t tokens = static_cast<int64_t>(x.size()) / runtime.geometry.hidden;
  const int64_t columns = weights.router.n;  // E, and the shared expert's gate behind them
  const std::span<float> logits = runtime.workspace.Take<float>(tokens * columns);
  runtime.Multiply(x, tokens, weights.router, logits);
  if (weights.router_bias != nullptr) {
    runtime.kernels.add_bias->run({logits.data(), columns, weights.router_bias, moe.experts, 0, tokens});
  }

  // The sum is one: when only one of the two kinds is cut, the whole one comes from rank 0 alone.
  const bool first = runtime.comm.rank() == 0;
  if (partial.experts || !partial.shared || first) {
    const std::span<int32_t> experts = runtime.workspace.Take<int32_t>(tokens * moe.top_k);
    const std::span<float> shares = runtime.workspace.Take<float>(tokens * moe.top_k);
    Route(runtime, weights.correction, logits, experts, shares);
    for (size_t slot = 0; slot < weights.experts.size(); ++slot) {
      if (runtime.shard.experts.slots[slot] < 0) continue;
      const device::Workspace::Frame expert_frame(&runtime.workspace);
      const Routed routed = TokensOf(runtime, experts, shares, runtime.shard.experts.slots[slot]);
      MlpLayer(runtime, weights.experts[slot], x, static_cast<int64_t>(routed.tokens.size()),
               {routed.tokens.data(), routed.tokens.data(), routed.weights.data()}, sums);
    }
  }
  if (moe.shared_width > 0 && (partial.shared || !partial.experts || first)) {
    if (!moe.shared_gate) return MlpLayer(runtime, weights.shared, x, tokens, {}, sums);
    const std::span<float> gates = runtime.workspace.Take<float>(tokens);
    for (int64_t t = 0; t < tokens; ++t) {
      gates[static_cast<size_t>(t)] =
          kernels::Sigmoid<kernels::ScalarOps>(logits[static_cast<size_t>(t * columns + moe.experts)]);
    }
    MlpLayer(runtime, weights.shared, x, tokens, {nullptr, nullptr, gates.data()}, sums);
  }
}

}  // namespace trivet::model
