// SPDX-License-Identifier: Apache-2.0
#include "device/peer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

namespace trivet::device {
namespace {

TEST(PeerMemory, IsOfGpus) {
  const Result<PeerMemory> memory = PeerMemory::Make(Device(), 100, "test");
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, Code::kUnsupported);
}

TEST(PeerMemory, OpensItsOwn) {
  const Result<Device> device = Device::Open(Backend::kCuda, 0);
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  Result<PeerMemory> made = PeerMemory::Make(*device, 4096, "test");
  ASSERT_TRUE(made.ok()) << made.error().message;
  PeerMemory memory = std::move(made).value();
  EXPECT_EQ(*memory.Open(memory.handle()), memory.data());
  PeerMemory moved = std::move(memory);
  EXPECT_EQ(moved.handle().address, moved.data());
}

TEST(HostPages, AreSeenByTheDevice) {
  const Result<Device> device = Device::Open(Backend::kCuda, 0);
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  {
    Result<HostPages> made = HostPages::Map(page, 4096);
    ASSERT_TRUE(made.ok()) << made.error().message;
    HostPages pages = std::move(made).value();
    Buffer buffer = std::move(Buffer::Make(*device, 8, "test")).value();
    *static_cast<int64_t*>(page) = 77;
    device->Copy(buffer.data(), pages.on_device(), 8);
    int64_t back = 0;
    device->Download(&back, buffer.data(), 8);
    EXPECT_EQ(back, 77);
  }
  ::munmap(page, 4096);
}

}  // namespace
}  // namespace trivet::device
