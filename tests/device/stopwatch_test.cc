// SPDX-License-Identifier: Apache-2.0
#include "device/stopwatch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "device/buffer.h"

namespace trivet::device {
namespace {

TEST(Stopwatch, GivesLaps) {
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    const Result<Device> device = Device::Open(backend, 0);
    if (!device.ok()) GTEST_SKIP() << device.error().message;
    Buffer buffer = std::move(Buffer::Make(*device, 1 << 24, "test")).value();
    Stopwatch watch(*device);
    EXPECT_TRUE(watch.Take().empty());
    watch.Lap();
    ::usleep(30000);
    watch.Lap(true);  // forgets what was before
    device->Zero(buffer.data(), buffer.bytes());
    watch.Lap();
    ::usleep(3000);
    watch.Lap();
    Stopwatch moved = std::move(watch);
    const std::vector<double> laps = moved.Take();
    ASSERT_EQ(laps.size(), 2U);
    EXPECT_GT(laps[0], 0);
    EXPECT_LT(laps[0], 29000);
    EXPECT_GE(laps[1], 2900);
    EXPECT_TRUE(moved.Take().empty());
    moved.Lap();
    moved.Lap();
    EXPECT_EQ(moved.Take().size(), 1U);
  }
}

}  // namespace
}  // namespace trivet::device
