// SPDX-License-Identifier: Apache-2.0
#include "device/graph.h"

#include <gtest/gtest.h>

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

TEST(Graph, AnEmptyOneHasRecordedNothing) {
  Graph graph;
  EXPECT_FALSE(graph.recorded());
  const Graph moved = std::move(graph);
  EXPECT_FALSE(moved.recorded());
}

}  // namespace
}  // namespace trivet::device
