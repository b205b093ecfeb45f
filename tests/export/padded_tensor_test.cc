// SPDX-License-Identifier: Apache-2.0
#include "export/padded_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/io/temp_dir.h"

namespace trivet::exporter {
namespace {

using testing::ElementsAre;

plan::LocalTensor Local(std::vector<plan::Slice> slices) {
  plan::LocalTensor local;
  local.name = "local";
  local.slices = std::move(slices);
  return local;
}

TEST(ComposeRectangles, SectionsMoveToWhereTheyAreWhenPadded) {
  // Two sections of 4 rows of one source, each in a local section of 6.
  const plan::ShardMap real = {{Local({{"s", 0, 0, 4, 8, 0, 0}, {"s", 4, 0, 4, 8, 6, 0}})}};
  const plan::ShardMap padded = {{Local({{"s", 0, 0, 12, 8, 0, 0}})}};
  const auto rectangles = ComposeRectangles(real, padded).at("s");
  ASSERT_EQ(rectangles.size(), 2U);
  EXPECT_EQ(rectangles[0].dst_row, 0);
  EXPECT_EQ(rectangles[1].src_row, 4);
  EXPECT_EQ(rectangles[1].dst_row, 6);
  EXPECT_EQ(rectangles[1].rows, 4);
  EXPECT_EQ(rectangles[1].cols, 8);
}

TEST(ComposeRectangles, StepsAndTurnedSlicesKeepTheirSteps) {
  plan::Slice from{"s", 0, 1, 5, 3, 4, 0, 1, 2, true};
  plan::Slice to{"s", 0, 1, 5, 4, 4, 0, 1, 2, true};
  plan::ShardMap real = {{Local({from})}}, padded = {{Local({to})}};
  const auto rectangles = ComposeRectangles(real, padded).at("s");
  ASSERT_EQ(rectangles.size(), 1U);
  EXPECT_EQ(rectangles[0].cols, 3);
  EXPECT_EQ(rectangles[0].src_col, 1);
  EXPECT_EQ(rectangles[0].dst_col, 1);
  EXPECT_EQ(rectangles[0].col_step, 2);
}

TEST(PaddedTensor, ZerosSurroundWhatIsCopied) {
  const TempDir dir;
  const std::vector<uint8_t> values = {1, 2, 3, 4, 5, 6};
  const std::vector<checkpoint::TensorDecl> decls = {{"t", tensor::DType::kU8, {2, 3}}};
  auto writer = checkpoint::SafetensorsWriter::Create(dir.Path("model.safetensors"), decls, {});
  ASSERT_TRUE(writer.ok() && writer->Append(std::as_bytes(std::span(values))).ok() && writer->Finish().ok());
  std::vector<std::string> notices;
  const Result<checkpoint::Checkpoint> opened = checkpoint::Checkpoint::Open(dir.Path(), &notices);
  ASSERT_TRUE(opened.ok());
  const auto bytes = [&](std::vector<int64_t> shape, std::vector<Rectangle> rectangles) {
    std::vector<int> all;
    const Status status = PaddedTensor(*opened, *opened->Find("t"), std::move(shape), std::move(rectangles))
                              .produce([&](std::span<const std::byte> piece) -> Status {
                                for (const std::byte byte : piece) all.push_back(std::to_integer<int>(byte));
                                return {};
                              });
    EXPECT_TRUE(status.ok());
    return all;
  };
  EXPECT_THAT(bytes({3, 3}, {{0, 0, 1, 0, 2, 3}}), ElementsAre(0, 0, 0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(bytes({2, 5}, {{0, 0, 0, 0, 2, 2}, {0, 2, 0, 4, 2, 1}}), ElementsAre(1, 2, 0, 0, 3, 4, 5, 0, 0, 6));
  EXPECT_THAT(bytes({2, 4}, {{0, 0, 0, 1, 2, 2, 1, 2}}), ElementsAre(0, 1, 0, 3, 0, 4, 0, 6));
}

}  // namespace
}  // namespace trivet::exporter
