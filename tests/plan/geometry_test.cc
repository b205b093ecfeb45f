// SPDX-License-Identifier: Apache-2.0
#include "plan/geometry.h"

#include <gtest/gtest.h>

namespace trivet::plan {
namespace {

TEST(Geometry, UsesLooksAtEveryLayer) {
  Geometry geometry;
  EXPECT_FALSE(geometry.Uses(Mixer::kAttention));
  geometry.layers = {{Mixer::kDeltaNet, ChannelMixer::kMlp}, {Mixer::kDeltaNet, ChannelMixer::kMoe}};
  EXPECT_FALSE(geometry.Uses(Mixer::kAttention));
  EXPECT_TRUE(geometry.Uses(Mixer::kDeltaNet));
  EXPECT_TRUE(geometry.Uses(ChannelMixer::kMlp));
  EXPECT_TRUE(geometry.Uses(ChannelMixer::kMoe));
}

}  // namespace
}  // namespace trivet::plan
