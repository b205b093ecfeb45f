// SPDX-License-Identifier: Apache-2.0
// Needs two GPUs and NCCL for more than refusals.
#include "comm/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "device/buffer.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using device::Buffer;
using device::Device;
using testing::HasSubstr;

TEST(Nccl, RanksOnAProcessorAreRefused) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  RunThreads(2, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    const Result<std::unique_ptr<Nccl>> made = Nccl::Make(&comm, Device(), "libnccl.so.2");
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::kUnsupported);
    EXPECT_THAT(made.error().message, HasSubstr("expected ranks on GPUs"));
    EXPECT_TRUE(comm.Barrier().ok());
  });
}

// Integers have one sum, whoever adds them.
TEST(Nccl, SumsOfIntegersAreOurs) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  RunThreads(2, [&](int64_t rank) {
    const Result<Device> device = Device::Open(Backend::kCuda, rank);
    if (!device.ok()) GTEST_SKIP() << device.error().message;
    Communicator comm(group.get(), rank);
    ASSERT_TRUE(comm.Connect(*device, Transport::kAuto).ok());
    EXPECT_THAT(Nccl::Make(&comm, *device, "libno-such-library.so").error().message,
                HasSubstr("libno-such-library.so: expected a library"));
    Result<std::unique_ptr<Nccl>> made = Nccl::Make(&comm, *device, "libnccl.so.2");
    if (!made.ok()) {
      EXPECT_TRUE(comm.Close().ok());
      GTEST_SKIP() << made.error().message;
    }
    Buffer buffer = std::move(Buffer::Make(*device, 1 << 20, "test")).value();
    for (const size_t count : {size_t{1}, size_t{5120}, size_t{100001}}) {
      const std::span<int64_t> there = buffer.As<int64_t>().first(count);
      std::vector<int64_t> own(count), ours(count), theirs(count);
      for (size_t i = 0; i < count; ++i) own[i] = (static_cast<int64_t>(i) * 0x1234567890AB + rank) << 8;
      const auto bytes = static_cast<int64_t>(there.size_bytes());
      device->Upload(there.data(), own.data(), bytes);
      ASSERT_TRUE(comm.AllReduce(there).ok());
      ASSERT_TRUE(comm.Wait().ok());
      device->Download(ours.data(), there.data(), bytes);
      device->Upload(there.data(), own.data(), bytes);
      const Status summed = (*made)->AllReduce(there);
      ASSERT_TRUE(summed.ok()) << summed.error().message;
      device->Download(theirs.data(), there.data(), bytes);
      EXPECT_EQ(ours, theirs) << count;
    }
    ASSERT_TRUE(comm.Barrier().ok());
    made->reset();
    EXPECT_TRUE(comm.Close().ok());
  });
}

}  // namespace
}  // namespace trivet::comm
