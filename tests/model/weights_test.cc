// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

TEST(Weights, ShapesFollowTheShard) {
  const plan::Geometry geometry = SmallGeometry();
  for (const int64_t ranks : {1, 2, 3, 8}) {
    const plan::Layout layout = MakeLayout(geometry, ranks);
    for (int64_t r = 0; r < ranks; ++r) {
      const RankFixture rank(geometry, layout, {.rank = r});
      const plan::RankShard& shard = layout.shards[static_cast<size_t>(r)];
      const LayerWeights& delta = rank.weights().layers[0];
      const LayerWeights& attention = rank.weights().layers[1];
      EXPECT_EQ(attention.attention.qkv.n, 2 * shard.attention.q_heads * 16 + 2 * shard.attention.kv_heads * 16);
      EXPECT_EQ(attention.attention.o.k, shard.attention.q_heads * 16);
      EXPECT_EQ(delta.delta_net.out.k, shard.delta_net.v_heads * 16);
      EXPECT_EQ(delta.delta_net.taps == nullptr, shard.delta_net.v_heads == 0);
      EXPECT_EQ(delta.moe.router.n, 6);  // experts and the shared expert's gate
      EXPECT_EQ(delta.moe.experts.slots, static_cast<int64_t>(shard.experts.slots.size()));
      EXPECT_EQ(delta.moe.shared.down.k, shard.shared.width);
      EXPECT_EQ(rank.weights().embed.n, shard.vocab.rows);
      EXPECT_EQ(rank.weights().head.n, shard.vocab.rows);
    }
  }
}

TEST(Weights, LayersAreNumberedWithinTheirKind) {
  plan::Geometry geometry = SmallGeometry();
  geometry.layers = {geometry.layers[0], geometry.layers[1], geometry.layers[0], geometry.layers[0],
                     geometry.layers[1]};
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {});
  std::vector<int64_t> indices;
  for (const LayerWeights& layer : rank.weights().layers) indices.push_back(layer.index);
  EXPECT_EQ(indices, (std::vector<int64_t>{0, 0, 1, 2, 1}));
}

TEST(Weights, ATiedHeadIsTheEmbedding) {
  plan::Geometry geometry = SmallGeometry();
  geometry.tied_head = true;
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {});
  EXPECT_EQ(rank.weights().head.parts[0].packed.data, rank.weights().embed.parts[0].packed.data);
}

TEST(Weights, TapsAreTransposed) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {});
  const float* taps = rank.weights().layers[0].delta_net.taps;
  constexpr size_t kChannels = 2 * 2 * 16 + 4 * 16;
  for (size_t channel = 0; channel < kChannels; ++channel) {
    for (size_t tap = 0; tap < 4; ++tap) {
      EXPECT_EQ(taps[tap * kChannels + channel], SourceValue("model.layers.0.linear_attn.conv1d.weight",
                                                             static_cast<int64_t>(channel), static_cast<int64_t>(tap)));
    }
  }
}

// Every slot's matrices stand in the tables, and kernels read the same array.
TEST(Weights, ExpertsStandInTables) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {});
  const ExpertWeights& experts = rank.weights().layers[0].moe.experts;
  ASSERT_EQ(experts.slots, geometry.moe.experts);
  EXPECT_EQ(experts.width, geometry.moe.width);
  for (const std::vector<ExpertMatrices>* tables : {&experts.gate_up, &experts.down}) {
    ASSERT_EQ(tables->size(), 1U) << "one format, one table";
    ASSERT_EQ(tables->front().w.size(), static_cast<size_t>(experts.slots));
    for (size_t slot = 0; slot < tables->front().w.size(); ++slot) {
      EXPECT_EQ(tables->front().device[slot].data, tables->front().w[slot].data);
      EXPECT_EQ(tables->front().w[slot].n, tables->front().n);
      EXPECT_TRUE(slot == 0 || tables->front().w[slot].data != tables->front().w[slot - 1].data);
    }
  }
  EXPECT_TRUE(experts.down_bias.empty());
  EXPECT_EQ(experts.gate_up_bias, nullptr);
}

TEST(Weights, BytesAreThoseOfTheBuffers) {
  const plan::Geometry geometry = SmallGeometry();
  const RankFixture rank(geometry, MakeLayout(geometry, 1), {});
  int64_t bytes = 0;
  for (const auto& [name, tensor] : rank.weights().tensors) bytes += tensor.buffer.bytes();
  EXPECT_EQ(rank.weights().bytes(), bytes);
  EXPECT_GT(bytes, 0);
}

}  // namespace
}  // namespace trivet::model
