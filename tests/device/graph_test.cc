// SPDX-License-Identifier: Apache-2.0
#include "device/graph.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "device/buffer.h"

namespace trivet::device {
namespace {

TEST(Graph, RepeatsWhatItRecordedOnWhatStandsThere) {
  const Result<Device> device = Device::Open(Backend::kCuda, 0);
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  Buffer buffer = std::move(Buffer::Make(*device, 16, "test")).value();
  const auto copy = [&]() -> Status {
    device->Copy(buffer.data() + 8, buffer.data(), 8);
    return {};
  };
  const Result<Graph> graph = Graph::Record(copy);
  ASSERT_TRUE(graph.ok());
  for (const int value : {7, 8}) {
    const std::vector<int> values = {value, -value, 0, 0};
    device->Upload(buffer.data(), values.data(), 16);
    graph->Launch();
    std::vector<int> back(4);
    device->Download(back.data(), buffer.data(), 16);
    EXPECT_EQ(back, (std::vector<int>{value, -value, value, -value}));
  }
  const Result<Graph> failed = Graph::Record([]() -> Status { return MakeError(Code::kPeer, "a peer is gone"); });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "a peer is gone");
}

TEST(ReplayClock, GivesTheTimesBetweenLaunches) {
  const Result<Device> device = Device::Open(Backend::kCuda, 0);
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  ReplayClock clock = ReplayClock::Make();
  Buffer buffer = std::move(Buffer::Make(*device, 1 << 20, "test")).value();
  const Result<Graph> graph = Graph::Record(
      [&]() -> Status {
        device->Copy(buffer.data() + (1 << 19), buffer.data(), 1 << 19);
        return {};
      },
      &clock);
  ASSERT_TRUE(graph.ok());
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 5; ++i) {
      graph->Launch(&clock);
      device->Wait();
      if (i == 2) ::usleep(20000);
    }
    const std::vector<double> gaps = clock.Take();
    ASSERT_EQ(gaps.size(), 2U) << "the first and the third of four, and none between two rounds";
    for (size_t i = 0; i < gaps.size(); ++i) {
      EXPECT_GT(gaps[i], 0);
      EXPECT_EQ(gaps[i] > 19000, i == 1) << gaps[i];
    }
  }
  EXPECT_TRUE(clock.Take().empty());
}

TEST(Graph, AnEmptyOneHasRecordedNothing) {
  Graph graph;
  EXPECT_FALSE(graph.recorded());
  const Graph moved = std::move(graph);
  EXPECT_FALSE(moved.recorded());
}

}  // namespace
}  // namespace trivet::device
