// SPDX-License-Identifier: Apache-2.0
#include "cache/caches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace trivet::cache {
namespace {

plan::Geometry SmallGeometry() {
  plan::Geometry geometry;
  geometry.attention.head_dim = 8;
  geometry.delta_net.k_dim = 3;
  geometry.delta_net.v_dim = 5;
  geometry.delta_net.conv_width = 4;
  geometry.layers = {{plan::Mixer::kDeltaNet, {}}, {plan::Mixer::kAttention, {}}, {plan::Mixer::kDeltaNet, {}}};
  return geometry;
}

plan::RankShard SmallShard() {
  plan::RankShard shard;
  shard.attention.kv_heads = 2;
  shard.delta_net.k_heads = 2;
  shard.delta_net.v_heads = 4;
  return shard;
}

// A piece of a cache and how many floats belong to it.
struct Piece {
  float* data;
  int64_t count;
};

TEST(Caches, SizesFollowTheShard) {
  Result<Caches> caches = Caches::Make(device::Device(), SmallGeometry(), SmallShard(), {7, 3});
  ASSERT_TRUE(caches.ok());
  EXPECT_EQ(caches->state_stride(), 4 * 3 * 5);
  EXPECT_EQ(caches->conv_stride(), 3 * (2 * 2 * 3 + 4 * 5));
  const int64_t kv = 2 * 7 * 2 * 64 * 8, state = 3 * 60, conv = 3 * 96;
  EXPECT_EQ(caches->bytes(), (kv + 2 * state + 2 * conv) * 4);
  EXPECT_EQ(caches->values(0) - caches->keys(0), 7 * 2 * 64 * 8);
}

TEST(Caches, PiecesStartAsZeroAndDoNotOverlap) {
  Result<Caches> caches = Caches::Make(device::Device(), SmallGeometry(), SmallShard(), {7, 3});
  ASSERT_TRUE(caches.ok());
  const std::vector<Piece> pieces = {{caches->keys(0), 7168}, {caches->values(0), 7168}, {caches->state(0), 180},
                                     {caches->state(1), 180}, {caches->conv(0), 288},    {caches->conv(1), 288}};
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    EXPECT_TRUE(std::all_of(piece.data, piece.data + piece.count, [](float value) { return value == 0; })) << i;
    std::fill_n(piece.data, piece.count, static_cast<float>(i + 1));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto mine = [&](float value) { return value == static_cast<float>(i + 1); };
    EXPECT_TRUE(std::all_of(pieces[i].data, pieces[i].data + pieces[i].count, mine)) << i;
  }
}

TEST(Caches, AStateIsCopiedInAllLayersAndNothingElseIs) {
  Result<Caches> caches = Caches::Make(SmallGeometry(), SmallShard(), {7, 3});
  ASSERT_TRUE(caches.ok());
  for (int64_t layer = 0; layer < 2; ++layer) {
    std::fill_n(caches->state(layer) + 60, 60, 1.0F + static_cast<float>(layer));
    std::fill_n(caches->conv(layer) + 96, 96, 5.0F + static_cast<float>(layer));
  }
  caches->CopyState(1, 2);
  for (int64_t layer = 0; layer < 2; ++layer) {
    const auto is = [](const float* data, int64_t count, float value) {
      return std::all_of(data, data + count, [value](float found) { return found == value; });
    };
    const float state = 1.0F + static_cast<float>(layer), conv = 5.0F + static_cast<float>(layer);
    EXPECT_TRUE(is(caches->state(layer), 60, 0) && is(caches->state(layer) + 60, 120, state));
    EXPECT_TRUE(is(caches->conv(layer), 96, 0) && is(caches->conv(layer) + 96, 192, conv));
  }
}

TEST(Caches, ARankMayHoldNoHeads) {
  Result<Caches> caches = Caches::Make(device::Device(), SmallGeometry(), plan::RankShard{}, {7, 3});
  ASSERT_TRUE(caches.ok());
  EXPECT_EQ(caches->bytes(), 0);
}

TEST(Caches, LayersOfOneKindNeedNoneOfTheOther) {
  plan::Geometry geometry = SmallGeometry();
  geometry.layers = {{plan::Mixer::kAttention, {}}};
  geometry.delta_net = {};
  plan::RankShard shard = SmallShard();
  shard.delta_net = {};
  EXPECT_EQ(Caches::Make(device::Device(), geometry, shard, {1, 5})->bytes(), 2 * 2 * 64 * 8 * 4);
}

TEST(Caches, MoreThanTheMachineHasIsACapacityError) {
  for (const int64_t pages : {int64_t{1} << 45, std::numeric_limits<int64_t>::max() / 2}) {
    const Result<Caches> caches = Caches::Make(device::Device(), SmallGeometry(), SmallShard(), {pages, 3});
    ASSERT_FALSE(caches.ok()) << pages;
    EXPECT_EQ(caches.error().code, Code::kCapacity);
  }
}

}  // namespace
}  // namespace trivet::cache
