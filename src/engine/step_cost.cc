// SPDX-License-Identifier: Apache-2.0
#include "engine/step_cost.h"

#include <algorithm>

#include "base/check.h"
#include "plan/layout.h"
#include "plan/part_cost.h"

namespace trivet::engine {
namespace {

// Multiply-adds in the time in which a byte of the weights is read, as measured: two processor cores make 106 thousand
// million a second and read 25 GB (docs/measurements/cpu-speed.md), an H200 makes 46 million million in prefills and
// reads 4.3 TB (docs/measurements/cuda-kernels.md). Constants, since what is measured anew would cut steps anew.
constexpr double kProcessorWorkPerByte = 4;
constexpr double kGpuWorkPerByte = 10;

// Weights that a last-level cache keeps from step to step cost no reading. Few caches are smaller.
constexpr double kCachedBytes = double{32 << 20};

// A multiply-add of attention takes as long as so many of a product: exponentials and maxima come with it, and its
// chains are short (docs/measurements/serving.md).
constexpr int64_t kAttentionWork = 3;

// One token and a key of its, in one layer.
double KeyWork(const plan::Geometry& geometry) {
  return static_cast<double>(kAttentionWork * geometry.attention.q_heads * (geometry.key_dim() + geometry.value_dim()));
}

void AddAttention(int64_t window, double key_work, double key_bytes, std::vector<sched::AttentionCost>* attention) {
  auto found = std::find_if(attention->begin(), attention->end(),
                            [&](const sched::AttentionCost& cost) { return cost.window == window; });
  if (found == attention->end()) found = attention->insert(found, {.window = window});
  found->key_work += key_work;
  found->key_bytes += key_bytes;
}

}  // namespace

sched::StepCost StepCostOf(const plan::Geometry& geometry, const plan::ElementBytes& bytes, Backend backend) {
  const Result<plan::Layout> layout = plan::MakeLayout(geometry, {});
  CHECK_MSG(layout.ok(), layout.error().message);  // one rank has every model
  const plan::RankShard& whole = layout->shards.front();
  const plan::ElementBytes elements{.matrix = plan::ElementBytes::Alike(1)};
  sched::StepCost cost;
  cost.work_per_byte = backend == Backend::kCpu ? kProcessorWorkPerByte : kGpuWorkPerByte;
  cost.token_work = 0;
  cost.logits_work = plan::VocabBytes(geometry, geometry.vocab, 1);
  for (const plan::LayerGeometry& layer : geometry.layers) {
    if (plan::HasKv(layer.mixer)) {
      cost.token_work += plan::AttentionWeightBytes(geometry, whole.attention, elements);
      const auto key_bytes = static_cast<double>(plan::KvTokenBytes(geometry, whole.attention, bytes));
      AddAttention(layer.window, KeyWork(geometry), key_bytes, &cost.attention);
    } else {
      const plan::DeltaNetGeometry& net = geometry.delta_net;
      cost.token_work += plan::DeltaNetWeightBytes(geometry, whole.delta_net, elements);
      cost.state_work += static_cast<double>(3 * net.v_heads * net.k_dim * net.v_dim);  // docs/numerics.md
      cost.state_bytes += static_cast<double>(plan::StateBytes(geometry, whole.delta_net));
    }
    if (layer.channel_mixer == plan::ChannelMixer::kMlp) {
      cost.token_work += plan::GatedMlpBytes(geometry, whole.mlp.width, 1);
      continue;
    }
    cost.token_work +=
        plan::GatedMlpBytes(geometry, whole.shared.width, 1) + plan::ExpertStepBytes(geometry, whole.experts, elements);
    cost.expert_bytes += plan::ExpertWeightBytes(geometry, whole.experts, bytes);
    cost.routed_share = static_cast<double>(geometry.moe.top_k) / static_cast<double>(geometry.moe.experts);
  }
  const plan::LayoutCost priced = plan::PriceLayout(geometry, *layout, bytes);
  // What one token reads is priced with the experts that it takes.
  const double others = static_cast<double>(priced.ranks.front().step_bytes) - cost.expert_bytes * cost.routed_share;
  cost.weight_bytes = std::max(0.0, others - kCachedBytes);
  cost.expert_bytes = std::max(0.0, cost.expert_bytes - std::max(0.0, kCachedBytes - others));
  return cost;
}

}  // namespace trivet::engine
