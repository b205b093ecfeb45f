// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

// `bytes` bytes of a device, and what they are.
struct Filled {
  Filled(const Device& device, int64_t bytes)
      : buffer(std::move(Buffer::Make(device, bytes, "test")).value()), values(static_cast<size_t>(bytes)) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 7 + i / 251);
    device.Upload(buffer.data(), values.data(), bytes);
  }
  Buffer buffer;
  std::vector<std::byte> values;
};

// Copies to the host that pass through the device's own memory, and those that are too long for it.
TEST(Device, DownloadsOfAnyLength) {
  const Result<Device> device = Device::Open(Backend::kCuda, 0);
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  constexpr int64_t kMost = 1 << 20;
  Filled filled(*device, kMost);
  const auto& [buffer, values] = filled;
  for (const int64_t bytes : {int64_t{1}, int64_t{4}, int64_t{1} << 18, (int64_t{1} << 18) + 1, kMost}) {
    std::vector<std::byte> back(static_cast<size_t>(bytes));
    device->Download(back.data(), buffer.data(), bytes);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), values.begin())) << bytes;
  }
}

// Several at once, that fit the device's own memory together or do not, with empty ones among them.
TEST(Device, DownloadsOfSeveralPieces) {
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    const Result<Device> device = Device::Open(backend, 0);
    if (!device.ok()) GTEST_SKIP() << device.error().message;
    constexpr int64_t kMost = 1 << 19;
    Filled filled(*device, kMost);
    const auto& [buffer, values] = filled;
    for (const std::array<int64_t, 4>& sizes : {std::array<int64_t, 4>{4, 0, 17, 512}, {1, 1 << 18, 3, 0}}) {
      std::vector<std::vector<std::byte>> back;
      std::vector<Device::Piece> pieces;
      int64_t from = 0;
      for (const int64_t bytes : sizes) {
        back.emplace_back(static_cast<size_t>(bytes));
        pieces.push_back({back.back().data(), buffer.data() + from, bytes});
        from += bytes + 5;
      }
      device->Download(pieces);
      for (size_t i = 0; i < pieces.size(); ++i) {
        const auto* expected = values.data() + (static_cast<const std::byte*>(pieces[i].from) - buffer.data());
        EXPECT_TRUE(std::equal(back[i].begin(), back[i].end(), expected)) << sizes[i];
      }
    }
  }
}

}  // namespace
}  // namespace trivet::device
