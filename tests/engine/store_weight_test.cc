// SPDX-License-Identifier: Apache-2.0
#include "engine/store_weight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "tests/checkpoint/safetensors_bytes.h"
#include "tests/io/temp_dir.h"

namespace trivet::engine {
namespace {

using checkpoint::Checkpoint;
using checkpoint::StoredWeight;
using testing::HasSubstr;

std::string Floats(std::initializer_list<float> values) {
  std::string text;
  for (const float value : values) text.append(reinterpret_cast<const char*>(&value), 4);
  return text;
}

// A weight of 2 rows by 160 columns in E4M3, all codes `code`, with scales in blocks of 128: 2 and 4.
struct Fp8 {
  Fp8(char code, float second) {
    const std::string header = R"({"a.weight":{"dtype":"F8_E4M3","shape":[2,160],"data_offsets":[0,320]},)"
                               R"("a.weight_scale_inv":{"dtype":"F32","shape":[1,2],"data_offsets":[320,328]}})";
    dir.Write("model.safetensors", checkpoint::FileBytes(header, std::string(320, code) + Floats({2, second})));
    auto opened = Checkpoint::Open(dir.Path("model.safetensors"), &notices);
    CHECK(opened.ok());
    checkpoint.emplace(std::move(opened).value());
    weight = checkpoint::FindWeight(*checkpoint, {}, "a.weight", std::vector<int64_t>{2, 160}).value();
    codes.assign(160, static_cast<std::byte>(code));
  }
  TempDir dir;
  std::vector<std::string> notices;
  std::optional<Checkpoint> checkpoint;
  StoredWeight weight;
  std::vector<std::byte> codes;
};

TEST(RowBlocks, PutsScalesBeforeCodesAndFillsTheLastBlock) {
  const Fp8 fp8(0x38, 4);  // ones
  EXPECT_EQ(FormatOf(fp8.weight), kernels::WeightFormat::kFp8);
  EXPECT_EQ(CodeBytes(fp8.weight, 160), 160);
  RowBlocks blocks;
  ASSERT_TRUE(blocks.Start(*fp8.checkpoint, fp8.weight, 0, 2).ok());
  int64_t count = 0;
  const auto row = blocks.Row(1, 0, 160, fp8.codes, &count);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(count, 256);
  std::vector<float> values(256);
  quant::DecodeBlocks(BlocksOf(fp8.weight), *row, values);
  EXPECT_EQ(values[127], 2.0F);
  EXPECT_EQ(values[128], 4.0F);
  EXPECT_EQ(values[159], 4.0F);
  EXPECT_EQ(values[160], 0.0F);
  // A cut inside the row meets the scale of its own block.
  const auto tail = blocks.Row(0, 128, 32, std::span(fp8.codes).subspan(128), &count);
  ASSERT_TRUE(tail.ok());
  quant::DecodeBlocks(BlocksOf(fp8.weight), *tail, std::span(values).first(128));
  EXPECT_EQ(values[0], 4.0F);
}

TEST(RowBlocks, WeightsThatAreNoNumbersAreRefused) {
  RowBlocks blocks;
  int64_t count = 0;
  const Fp8 nan(0x7F, 4);
  ASSERT_TRUE(blocks.Start(*nan.checkpoint, nan.weight, 0, 1).ok());
  const auto row = blocks.Row(0, 0, 160, nan.codes, &count);
  ASSERT_FALSE(row.ok());
  EXPECT_THAT(row.error().message, HasSubstr("E4M3 code"));
  for (const float scale : {1e38F, -HUGE_VALF, NAN}) {
    const Fp8 bad(0x38, scale);
    const Status status = blocks.Start(*bad.checkpoint, bad.weight, 0, 1);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("a.weight: expected finite weights"));
  }
}

}  // namespace
}  // namespace trivet::engine
