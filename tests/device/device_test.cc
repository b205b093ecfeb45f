// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "device/buffer.h"

namespace trivet::device {
namespace {

// Bytes go there and back on every backend that this machine has.
TEST(Device, BytesComeBack) {
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    const Result<Device> device = Device::Open(backend, 5);
    if (!device.ok()) {
      EXPECT_EQ(backend, Backend::kCuda);
      EXPECT_EQ(device.error().code, Code::kUsage);
      EXPECT_THAT(device.error().message, testing::HasSubstr("--backend cuda: expected"));
      continue;
    }
    EXPECT_EQ(device->backend(), backend);
    const std::vector<int> values = {3, 1, 4, 1, 5};
    Buffer buffer = std::move(Buffer::Make(*device, 40, "test")).value();
    device->Upload(buffer.data() + 20, values.data(), 20);
    device->Copy(buffer.data(), buffer.data() + 24, 12);
    device->Zero(buffer.data() + 24, 4);
    std::vector<int> back(10, -1);
    device->Download(back.data(), buffer.data(), 40);
    device->Wait();
    EXPECT_EQ(back, (std::vector<int>{1, 4, 1, 0, 0, 3, 0, 4, 1, 5}));
  }
}

TEST(Device, NothingIsNoBytes) {
  const Device device;
  device.Upload(nullptr, nullptr, 0);
  device.Download(nullptr, nullptr, 0);
  device.Copy(nullptr, nullptr, 0);
  device.Zero(nullptr, 0);
}

TEST(Device, FreeMemoryIsToldBeforeAndAfterAGpuIsOpened) {
  const Result<int64_t> before = Device::FreeBytesOfAll(Backend::kCuda, 2);
  const Result<Device> device = Device::Open(Backend::kCuda, 0);
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  ASSERT_TRUE(before.ok()) << before.error().message;
  const Result<int64_t> after = Device::FreeBytesOfAll(Backend::kCuda, 2);
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_GT(*after, *before / 2);
  EXPECT_LE(*after, *before + *before / 8);
}

}  // namespace
}  // namespace trivet::device
