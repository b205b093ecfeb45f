// SPDX-License-Identifier: Apache-2.0
#include "engine/finite_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/writer.h"
#include "tests/checkpoint/gguf_bytes.h"
#include "tests/io/temp_dir.h"

namespace trivet::engine {
namespace {

using checkpoint::TensorDecl;
using tensor::DType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// A file of these tensors, one behind the other, with bytes of `data` set at offsets; the rest is zero.
ScanFindings Scanned(const std::vector<TensorDecl>& tensors, const std::vector<std::pair<size_t, std::string>>& data,
                     const ScaleTensors& scales = {}, int64_t* read = nullptr) {
  const TempDir dir;
  auto writer = checkpoint::SafetensorsWriter::Create(dir.Path("model.safetensors"), tensors, {});
  CHECK_MSG(writer.ok(), writer.error().message);
  std::string bytes(static_cast<size_t>(writer->remaining_bytes()), '\0');
  for (const auto& [at, text] : data) bytes.replace(at, text.size(), text);
  CHECK(writer->Append(std::as_bytes(std::span(bytes))).ok());
  CHECK(writer->Finish().ok());
  std::vector<std::string> notices;
  const auto opened = checkpoint::Checkpoint::Open(dir.Path(), &notices);
  CHECK_MSG(opened.ok(), opened.error().message);
  const auto found = ScanTensors(*opened, scales, [&](int64_t done, int64_t total) {
    EXPECT_LE(done, total);
    if (read != nullptr) *read = done;
  });
  CHECK_MSG(found.ok(), found.error().message);
  return *found;
}
std::vector<std::string> Found(const std::vector<TensorDecl>& tensors,
                               const std::vector<std::pair<size_t, std::string>>& data, const ScaleTensors& scales = {},
                               int64_t* read = nullptr) {
  return Scanned(tensors, data, scales, read).defects;
}

TEST(FiniteScan, SoundTensorsOfEveryKindSayNothing) {
  int64_t read = 0;
  EXPECT_THAT(Found({{"f", DType::kF32, {4}}, {"b", DType::kBF16, {4}}, {"u", DType::kU8, {3}}, {"q", DType::kF4, {4}}},
                    {{16 + 8, "\xff\xff"}}, {}, &read),
              IsEmpty());
  EXPECT_EQ(read, 16 + 8 + 3 + 2);
}

TEST(FiniteScan, NanAndInfinityAreCountedAndPlaced) {
  const std::string nan = "\xff\xff\xff\xff", infinity = std::string("\0\0\x80\x7f", 4);
  EXPECT_THAT(
      Found({{"w", DType::kF32, {8}}}, {{8, nan}, {12, infinity}, {20, nan}}),
      ElementsAre(StartsWith("w: expected finite numbers, found 2 NaN and 1 infinite, the first at element 2")));
  EXPECT_THAT(
      Found({{"h", DType::kF16, {4}}, {"e", DType::kF8E4M3, {4}}}, {{6, std::string("\0\x7c", 2)}, {9, "\x7f"}}),
      ElementsAre(HasSubstr("h: expected finite numbers, found 0 NaN and 1 infinite, the first at element 3"),
                  HasSubstr("e: expected finite numbers, found 1 NaN and 0 infinite, the first at element 1")));
}

// Places far behind the first piece are counted from the tensor's start.
TEST(FiniteScan, PiecesOfATensorAreOne) {
  const int64_t count = 2'500'000;
  EXPECT_THAT(Found({{"w", DType::kBF16, {count}}}, {{2 * (count - 1), "\xc0\x7f"}}),
              ElementsAre(HasSubstr("1 NaN and 0 infinite, the first at element 2499999")));
}

TEST(FiniteScan, ScalesOf255AreNamed) {
  EXPECT_THAT(
      Found({{"s", DType::kF8E8M0, {4}}, {"x_scales", DType::kU8, {4}}, {"x_blocks", DType::kU8, {4}}},
            {{1, "\xff"}, {6, "\xff\xff"}, {8, "\xff"}}, {{"x_scales"}, {}}),
      ElementsAre(HasSubstr("s: expected E8M0 scales below 0xFF, found 1 of 0xFF, the first at element 1"),
                  HasSubstr("x_scales: expected E8M0 scales below 0xFF, found 2 of 0xFF, the first at element 2")));
}

// Scales that are finite and still none: below zero is damage, zero and far from all others may be meant.
TEST(FiniteScan, AbsurdFp8ScalesAreNamed) {
  const auto scanned = [](std::vector<float> values) {
    values.insert(values.begin(), {0.5F, 1.0F, 2.0F});
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    const auto count = static_cast<int64_t>(values.size());
    // The same numbers as weights mean nothing.
    return Scanned({{"s", DType::kF32, {count}}, {"w", DType::kF32, {count}}}, {{0, bytes}, {bytes.size(), bytes}},
                   {{}, {"s"}});
  };
  const ScanFindings sound = scanned({9000.0F, 1e-30F});
  EXPECT_THAT(sound.defects, IsEmpty());
  EXPECT_THAT(sound.notices, IsEmpty());
  const ScanFindings negative = scanned({1.0F, -1.0F, -2.0F});
  EXPECT_THAT(negative.defects,
              ElementsAre(StartsWith("s: expected scales above 0, found 2 below, the first at element "
                                     "4")));
  EXPECT_THAT(negative.notices, IsEmpty());
  const ScanFindings zero = scanned({0.0F});
  EXPECT_THAT(zero.defects, IsEmpty());
  EXPECT_THAT(zero.notices, ElementsAre(StartsWith("s: 1 scales are 0, the first at element 3")));
  const ScanFindings far = scanned({1.0F, 30000.0F});
  EXPECT_THAT(far.defects, IsEmpty());
  EXPECT_THAT(far.notices, ElementsAre(StartsWith("s: 1 scales are more than 10000 times their median 1, the first at "
                                                  "element 4 with 30000")));
  // What is not finite is a defect, and no part of the median.
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const ScanFindings none = scanned({infinity, nan, 1.0F});
  EXPECT_THAT(none.defects, testing::Contains(StartsWith("s: expected finite numbers, found 1 NaN and 1 infinite")));
  EXPECT_THAT(none.notices, IsEmpty());
}

// Block formats: a scale that is none spoils its block.
TEST(FiniteScan, BlocksOfGgufFiles) {
  const TempDir dir;
  std::string q8(2 * 34, '\0'), mx(2 * 17, '\1');
  q8[34] = '\0';
  q8[35] = '\x7c';
  q8[36] = '\1';
  mx[17] = '\xff';
  q8.resize(96);
  dir.Write("m.gguf", checkpoint::GgufBytes(
                          {}, {checkpoint::Entry("q", {64}, 8, 0), checkpoint::Entry("m", {64}, 39, 96)}, q8 + mx));
  std::vector<std::string> notices;
  const auto opened = checkpoint::Checkpoint::Open(dir.Path("m.gguf"), &notices);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(ScanTensors(*opened, {}, {}).value().defects,
              ElementsAre(AllOf(HasSubstr("q: expected finite numbers, found 31 NaN and 1 infinite"),
                                HasSubstr("the first at element 32")),
                          HasSubstr("m: expected finite numbers, found 32 NaN and 0 infinite, the first at element 32, "
                                    "of E8M0 scales of 0xFF")));
}

}  // namespace
}  // namespace trivet::engine
