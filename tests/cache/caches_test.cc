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

plan::RankShard SmallShard(int64_t layers = 3) {
  plan::RankShard shard;
  shard.stage = {0, layers, true};
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
  const CacheUnits units = UnitsOf(SmallGeometry(), SmallShard(), {7, 3});
  EXPECT_EQ(caches->bytes(), 7 * units.page + 3 * units.slot);
}

TEST(Caches, AStageHasItsLayersAlone) {
  const CacheUnits whole = UnitsOf(SmallGeometry(), SmallShard(), {7, 3});
  plan::RankShard first = SmallShard(), second = SmallShard();
  first.stage = {0, 2, false};
  second.stage = {2, 3, true};
  const CacheUnits a = UnitsOf(SmallGeometry(), first, {7, 3}), b = UnitsOf(SmallGeometry(), second, {7, 3});
  EXPECT_EQ(b.page, 0);
  EXPECT_EQ(a.page, whole.page);
  EXPECT_EQ(a.slot, b.slot);
  EXPECT_EQ(a.slot + b.slot, whole.slot);
  EXPECT_EQ(Caches::Make(device::Device(), SmallGeometry(), second, {7, 3})->bytes(), 3 * b.slot);
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
  Result<Caches> caches = Caches::Make(device::Device(), SmallGeometry(), SmallShard(), {7, 3});
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

// Two layers with windows beside one with full attention.
plan::Geometry WindowGeometry() {
  plan::Geometry geometry = SmallGeometry();
  geometry.layers.resize(4);
  for (plan::LayerGeometry& layer : geometry.layers) layer.mixer = plan::Mixer::kAttention;
  geometry.layers[1].window = 10;
  geometry.layers[3].window = 100;
  return geometry;
}

TEST(Caches, ARingHoldsAStepAndTheWindowBeforeIt) {
  plan::LayerGeometry layer;
  const auto ring = [&](int64_t window, int64_t chunk, int64_t context) {
    layer.window = window;
    return RingPages(layer, {0, 0, chunk, context});
  };
  for (const int64_t window : {1, 2, 63, 64, 65, 66, 100, 128, 129, 512}) {
    for (const int64_t chunk : {1, 2, 16, 63, 64, 65, 512}) {
      // The most pages that the positions of a step and the window before it touch, wherever they begin.
      int64_t most = 0;
      for (int64_t first = 0; first < kPageTokens; ++first) {
        most = std::max(most, (first + window - 1 + chunk - 1) / kPageTokens + 1);
      }
      EXPECT_EQ(ring(window, chunk, 1 << 20), most) << window << ' ' << chunk;
    }
  }
  EXPECT_EQ(ring(512, 512, 200), 4) << "no more than the context has";
  EXPECT_EQ(ring(0, 512, 200), 0);
  layer.mixer = plan::Mixer::kDeltaNet;
  EXPECT_EQ(ring(10, 512, 200), 0);
}

TEST(Caches, LayersWithWindowsHaveRingsForSlotsInPlaceOfPages) {
  const CacheLimits limits{1000, 3, 16, 1 << 20};
  Result<Caches> caches = Caches::Make(device::Device(), WindowGeometry(), SmallShard(4), limits);
  ASSERT_TRUE(caches.ok());
  const CacheUnits units = UnitsOf(WindowGeometry(), SmallShard(4), limits);
  EXPECT_EQ(units.page, 2 * 2 * 2 * 64 * 8 * 4);
  EXPECT_EQ(units.slot, (2 + 3) * 2 * 2 * 64 * 8 * 4);
  EXPECT_EQ(caches->bytes(), 1000 * units.page + 3 * units.slot);
  EXPECT_EQ(caches->ring(0), 0);
  EXPECT_EQ(caches->ring(1), 2);
  EXPECT_EQ(caches->ring(3), 3);
  EXPECT_EQ(caches->rings(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(caches->values(1) - caches->keys(1), 3 * 2 * 2 * 64 * 8);
}

TEST(Caches, ARingIsCopiedWithItsSlot) {
  Result<Caches> caches = Caches::Make(device::Device(), WindowGeometry(), SmallShard(4), {4, 3, 16, 1 << 20});
  ASSERT_TRUE(caches.ok());
  const int64_t slot = 2 * 2 * 64 * 8;  // of layer 1
  std::fill_n(caches->keys(1) + slot, slot, 1.0F);
  std::fill_n(caches->values(1) + slot, slot, 2.0F);
  std::fill_n(caches->keys(0), 2 * 2 * 64 * 8, 3.0F);
  caches->CopyState(1, 0);
  const auto is = [](const float* data, int64_t count, float value) {
    return std::all_of(data, data + count, [value](float found) { return found == value; });
  };
  EXPECT_TRUE(is(caches->keys(1), 2 * slot, 1) && is(caches->keys(1) + 2 * slot, slot, 0));
  EXPECT_TRUE(is(caches->values(1), 2 * slot, 2) && is(caches->values(1) + 2 * slot, slot, 0));
  EXPECT_TRUE(is(caches->keys(0), 2 * 2 * 64 * 8, 3)) << "pages are no one's slot";
}

TEST(Caches, InFp8AKeyOrValueTakesAByteAndARowItsScale) {
  const CacheLimits limits{4, 3, 16, 1 << 20, KvDtype::kE4M3};
  Result<Caches> caches = Caches::Make(device::Device(), WindowGeometry(), SmallShard(4), limits);
  ASSERT_TRUE(caches.ok());
  const CacheUnits units = UnitsOf(WindowGeometry(), SmallShard(4), limits);
  EXPECT_EQ(units.page, 2 * 2 * 2 * 64 * (8 + 1));
  EXPECT_EQ(units.slot, (2 + 3) * 2 * 2 * 64 * (8 + 1));
  EXPECT_EQ(caches->bytes(), 4 * units.page + 3 * units.slot);
  EXPECT_EQ(caches->keys(0), nullptr);
  EXPECT_EQ(caches->values(0), nullptr);
  EXPECT_EQ(caches->value_codes(1) - caches->key_codes(1), 3 * 2 * 2 * 64 * 9);
  const int64_t slot = 2 * 2 * 64 * 9;  // of layer 1
  std::byte *keys = caches->key_codes(1), *values = caches->value_codes(1);
  ASSERT_TRUE(keys != nullptr && values != nullptr);
  std::fill_n(keys + slot, slot, std::byte{1});
  std::fill_n(values + slot, slot, std::byte{2});
  caches->CopyState(1, 0);
  const auto is = [](const std::byte* data, int64_t count, int value) {
    return std::all_of(data, data + count, [value](std::byte found) { return found == std::byte(value); });
  };
  EXPECT_TRUE(is(keys, 2 * slot, 1) && is(keys + 2 * slot, slot, 0));
  EXPECT_TRUE(is(values, 2 * slot, 2) && is(values + 2 * slot, slot, 0));
}

TEST(Caches, OptionsNameTheForm) {
  EXPECT_EQ(ParseKvDtype("auto").value(), KvDtype::kF32);
  EXPECT_EQ(ParseKvDtype(KvDtypeName(KvDtype::kE4M3)).value(), KvDtype::kE4M3);
  EXPECT_EQ(ParseKvDtype("fp4").error().message, "--kv-cache-dtype: expected auto or fp8, found \"fp4\"; choose one");
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
  plan::RankShard shard = SmallShard(1);
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
