// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace trivet::device {
namespace {

TEST(Buffer, IsZeroedAlignedAndWritable) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4095}, int64_t{4096}, int64_t{5000000}}) {
    Result<Buffer> buffer = Buffer::Make(Device(), bytes, "test");
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 4096, 0U);
    const std::span<const uint8_t> contents = std::as_const(*buffer).As<uint8_t>();
    EXPECT_EQ(contents.size(), static_cast<size_t>(bytes));
    EXPECT_TRUE(std::ranges::all_of(contents, [](uint8_t byte) { return byte == 0; }));
    std::ranges::fill(buffer->As<uint8_t>(), 7);
    EXPECT_EQ(contents.back(), 7);
  }
}

// Pages that this thread was given because it touched them for the first time.
int64_t PagesGiven() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(Buffer, PagesThatWereTakenAreThere) {
  constexpr int64_t kBytes = 64 << 20;
  for (const bool taken : {false, true}) {
    Buffer buffer = Buffer::Make(Device(), kBytes, "test").value();
    const std::span<uint8_t> contents = buffer.As<uint8_t>();
    if (taken) {
      contents[5] = 7;
      buffer.TakePages();
      EXPECT_EQ(contents[5], 7);
      EXPECT_EQ(contents[kBytes - 1], 0);
    }
    const int64_t before = PagesGiven();
    for (size_t at = 0; at < contents.size(); at += 4096) contents[at] = 1;
    const int64_t given = PagesGiven() - before;
    if (taken) {
      EXPECT_LT(given, 8);
    } else {
      EXPECT_GE(given, kBytes >> 21);  // pages may be of 2 MB
    }
  }
}

TEST(Buffer, ViewsHoldWholeElementsOnly) {
  Result<Buffer> buffer = Buffer::Make(Device(), 23, "test");
  EXPECT_EQ(buffer->As<int64_t>().size(), 2U);
  EXPECT_EQ(buffer->As<float>().size(), 5U);
}

TEST(Buffer, ZeroBytesAreAnEmptyBuffer) {
  const Result<Buffer> buffer = Buffer::Make(Device(), 0, "test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->bytes(), 0);
  EXPECT_TRUE(buffer->As<float>().empty());
}

TEST(Buffer, MovesItsMemory) {
  Buffer first = std::move(Buffer::Make(Device(), 100, "test")).value();
  std::byte* memory = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), memory);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: a moved-from buffer is empty
  EXPECT_EQ(first.bytes(), 0);
  Buffer third = std::move(Buffer::Make(Device(), 200, "test")).value();
  third = std::move(second);
  EXPECT_EQ(third.data(), memory);
  EXPECT_EQ(third.bytes(), 100);
}

TEST(Buffer, MemoryThatDoesNotExistIsAnErrorThatNamesItsUse) {
  // Sizes that no machine has, and one that overflowed where it was computed.
  for (const int64_t bytes :
       {int64_t{1} << 60, std::numeric_limits<int64_t>::max(), int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    const Result<Buffer> buffer = Buffer::Make(Device(), bytes, "KV cache");
    ASSERT_FALSE(buffer.ok()) << bytes;
    EXPECT_EQ(buffer.error().code, Code::kCapacity);
    EXPECT_THAT(buffer.error().message, testing::StartsWith("KV cache: expected "));
  }
}

}  // namespace
}  // namespace trivet::device
