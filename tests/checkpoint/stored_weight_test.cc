// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stored_weight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/safetensors_bytes.h"
#include "tests/io/temp_dir.h"

namespace trivet::checkpoint {
namespace {

using testing::HasSubstr;
using Shape = std::vector<int64_t>;

struct Entry {
  std::string name, dtype;
  Shape shape;
};

// A checkpoint of these tensors, all bytes zero.
Checkpoint Make(const std::vector<Entry>& entries) {
  std::string header = "{";
  int64_t at = 0;
  for (const Entry& entry : entries) {
    const auto dtype = tensor::ParseDType(entry.dtype);
    CHECK(dtype.has_value());
    const int64_t bytes = TensorBytes(*dtype, entry.shape, "test").value();
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", at > 0 ? "," : "",
                          entry.name, entry.dtype, fmt::join(entry.shape, ","), at, at + bytes);
    at += bytes;
  }
  const TempDir dir;
  dir.Write("model.safetensors", FileBytes(header + "}", std::string(static_cast<size_t>(at), '\0')));
  std::vector<std::string> notices;
  auto checkpoint = Checkpoint::Open(dir.Path("model.safetensors"), &notices);
  CHECK(checkpoint.ok());
  return std::move(checkpoint).value();
}

Result<StoredWeight> FindIn(const std::vector<Entry>& entries, const std::string& name, const Shape& shape,
                            const QuantConfig& config = {}) {
  const Checkpoint checkpoint = Make(entries);
  auto found = FindWeight(checkpoint, config, name, shape);
  // The checkpoint ends here: nothing below may follow the pointers.
  if (found.ok()) found->weight = found->scale = nullptr;
  return found;
}

TEST(StoredWeight, PlainWeightsAreThemselves) {
  const auto found = FindIn({{"a.weight", "BF16", {2, 3, 5}}}, "a.weight", {2, 3, 5});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->storage, Storage::kPlain);
  EXPECT_EQ(found->rows, 6);
  EXPECT_EQ(found->cols, 5);
  EXPECT_TRUE(FindIn({{"v", "F32", {4}}}, "v", {4}).ok());
}

TEST(StoredWeight, Fp8ScalesCoverBlocksRowsOrAll) {
  const Shape shape = {200, 300};
  const auto grid = FindIn({{"a.weight", "F8_E4M3", shape}, {"a.weight_scale_inv", "BF16", {2, 3}}}, "a.weight", shape);
  ASSERT_TRUE(grid.ok()) << grid.error().message;
  EXPECT_EQ(grid->storage, Storage::kFp8);
  EXPECT_EQ(grid->ScaleRow(127), 0);
  EXPECT_EQ(grid->ScaleRow(128), 1);
  EXPECT_EQ(grid->ScalesPerRow(), 3);
  const auto channel = FindIn({{"a.weight", "F8_E4M3", shape}, {"a.weight_scale", "F32", {200, 1}}}, "a.weight", shape);
  ASSERT_TRUE(channel.ok()) << channel.error().message;
  EXPECT_EQ(channel->ScaleRow(199), 199);
  EXPECT_EQ(channel->ScalesPerRow(), 1);
  const auto one = FindIn({{"a.weight", "F8_E4M3", shape}, {"a.weight_scale", "F32", {}}}, "a.weight", shape);
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->ScaleRow(199), 0);
  const auto e8m0 = FindIn({{"a.weight", "F8_E4M3", shape}, {"a.scale", "F8_E8M0", {2, 3}}}, "a.weight", shape);
  EXPECT_TRUE(e8m0.ok());
}

TEST(StoredWeight, GridsOfStackedExpertsBeginAnew) {
  const auto found =
      FindIn({{"e.gate_up_proj", "F8_E4M3", {3, 200, 128}}, {"e.gate_up_proj_scale_inv", "F32", {3, 2, 1}}},
             "e.gate_up_proj", {3, 200, 128});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->rows, 600);
  EXPECT_EQ(found->ScaleRow(199), 1);
  EXPECT_EQ(found->ScaleRow(200), 2);
  EXPECT_EQ(found->ScaleRow(599), 5);
}

TEST(StoredWeight, Mxfp4HasThreeCarriers) {
  const auto quark = FindIn({{"a.weight", "U8", {4, 32}}, {"a.weight_scale", "U8", {4, 2}}}, "a.weight", {4, 64});
  ASSERT_TRUE(quark.ok()) << quark.error().message;
  EXPECT_EQ(quark->storage, Storage::kMxfp4);
  EXPECT_EQ(quark->ScaleRow(3), 3);
  EXPECT_EQ(quark->ScalesPerRow(), 2);
  EXPECT_TRUE(FindIn({{"a.weight_packed", "U8", {4, 32}}, {"a.weight_scale", "U8", {4, 2}}}, "a.weight", {4, 64}).ok());
  const std::vector<Entry> blocks = {{"e.gate_up_proj_blocks", "U8", {2, 4, 2, 16}},
                                     {"e.gate_up_proj_scales", "U8", {2, 4, 2}}};
  const auto gpt_oss = FindIn(blocks, "e.gate_up_proj", {2, 4, 64});
  ASSERT_TRUE(gpt_oss.ok()) << gpt_oss.error().message;
  EXPECT_EQ(gpt_oss->ScaleRow(7), 7);
  EXPECT_TRUE(HasWeight(Make(blocks), "e.gate_up_proj"));
  EXPECT_FALSE(HasWeight(Make(blocks), "e.down_proj"));
}

TEST(StoredWeight, EachDefectHasAMessageOfItsOwn) {
  const Shape shape = {4, 64};
  QuantConfig ignoring;
  ignoring.method = "fp8";
  ignoring.ignore = {"a"};
  struct {
    std::vector<Entry> entries;
    const char* message;
    QuantConfig config = {};
  } const cases[] = {
      {{{"b", "BF16", {1}}}, "found none"},
      {{{"a.weight", "BF16", {4, 63}}}, "expected shape [4, 64]"},
      {{{"a.weight", "I32", {4, 64}}}, "found I32"},
      {{{"a.weight", "F8_E5M2", {4, 64}}}, "found F8_E5M2"},
      {{{"a.weight", "F8_E4M3", {4, 64}}}, "scales beside F8_E4M3"},
      {{{"a.weight", "F8_E4M3", {4, 64}}, {"a.weight_scale", "I32", {1}}}, "found I32"},
      {{{"a.weight", "F8_E4M3", {4, 64}}, {"a.weight_scale", "F32", {3, 1}}}, "expected shape [1, 1]"},
      {{{"a.weight", "U8", {4, 32}}}, "scales beside packed codes"},
      {{{"a.weight", "U8", {4, 64}}, {"a.weight_scale", "U8", {4, 2}}}, "expected shape [4, 32]"},
      {{{"a.weight", "U8", {4, 32}}, {"a.weight_scale", "U8", {4, 3}}}, "expected shape [4, 2]"},
      {{{"a.weight_packed", "I32", {4, 8}}, {"a.weight_scale", "U8", {4, 2}}}, "found I32"},
      {{{"a.weight_packed", "U8", {4, 32}},
        {"a.weight_scale", "F8_E4M3", {4, 4}},
        {"a.weight_global_scale", "F32", {1}}},
       "without a global scale"},
      {{{"a.weight", "BF16", {4, 64}}, {"a.weight_scale", "F32", {1}}}, "applied twice"},
      {{{"a.weight", "F8_E4M3", {4, 64}}, {"a.weight_scale", "F32", {1}}}, "lists it as such", ignoring},
  };
  for (const auto& test : cases) {
    const auto found = FindIn(test.entries, "a.weight", shape, test.config);
    ASSERT_FALSE(found.ok()) << test.message;
    EXPECT_THAT(found.error().message, HasSubstr(test.message));
  }
  // Truth beats the config: an unquantised tensor that no list names is taken as it is.
  EXPECT_TRUE(FindIn({{"a.weight", "BF16", {4, 64}}}, "a.weight", shape, {"fp8", 128, 128, {}}).ok());
}

}  // namespace
}  // namespace trivet::checkpoint
