// SPDX-License-Identifier: Apache-2.0
#include "engine/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/writer.h"
#include "plan/axis_rules.h"
#include "quant/convert.h"
#include "tests/checkpoint/gguf_bytes.h"
#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

using checkpoint::Checkpoint;
using checkpoint::TensorDecl;
using tensor::DType;
using testing::HasSubstr;

// A source tensor whole, as float32.
std::vector<float> Source(const Checkpoint& checkpoint, const std::string& name) {
  const checkpoint::TensorInfo* info = checkpoint.Find(name);
  CHECK_MSG(info != nullptr, name);
  std::vector<std::byte> bytes(static_cast<size_t>(info->bytes));
  CHECK(checkpoint.Read(*info, 0, bytes).ok());
  std::vector<float> values(bytes.size() * 8 / static_cast<size_t>(tensor::DTypeBits(info->dtype)));
  CHECK(quant::DecodeToFloat(info->dtype, bytes, values).ok());
  return values;
}

float At(const model::LoadedTensor& tensor, int64_t row, int64_t col) {
  if (tensor.role == plan::Role::kVector)
    return tensor.buffer.As<float>()[static_cast<size_t>(row * tensor.cols + col)];
  for (const model::LoadedPart& part : tensor.parts) {
    if (row >= part.row && row < part.row + part.rows)
      return kernels::Element(tensor.Packed(part), row - part.row, col);
  }
  CHECK_MSG(false, "a row in no part");
  return 0;
}

// Every element of a loaded tensor is its source's, and zero where no slice puts one.
void ExpectLoaded(const Checkpoint& checkpoint, const plan::LocalTensor& local, const model::LoadedTensor& loaded) {
  ASSERT_EQ(loaded.rows, local.rows);
  ASSERT_EQ(loaded.cols, local.cols);
  std::vector<float> expected(static_cast<size_t>(local.rows * local.cols));
  for (const plan::Slice& slice : local.slices) {
    const std::vector<float> source = Source(checkpoint, slice.source);
    const checkpoint::TensorInfo& info = *checkpoint.Find(slice.source);
    const int64_t cols = info.shape.size() < 2 ? 1 : info.shape.back();
    for (int64_t row = 0; row < slice.rows; ++row) {
      for (int64_t col = 0; col < slice.cols; ++col) {
        const int64_t dst_row = slice.dst_row + (slice.transposed ? col : row);
        const int64_t dst_col = slice.dst_col + (slice.transposed ? row : col);
        expected[static_cast<size_t>(dst_row * local.cols + dst_col)] =
            source[static_cast<size_t>((slice.src_row + row) * cols + slice.src_col + col)];
      }
    }
  }
  int64_t wrong = 0;
  for (int64_t row = 0; row < local.rows; ++row) {
    for (int64_t col = 0; col < local.cols; ++col) {
      wrong += At(loaded, row, col) != expected[static_cast<size_t>(row * local.cols + col)];
    }
  }
  EXPECT_EQ(wrong, 0) << local.name;
}

// Loads with three threads, which share the rows of a piece; and once more in bands of a few tiles, as for a GPU, where
// the same bytes must come.
Result<model::LoadedTensors> LoadWithThreads(const OpenedModel& model, const plan::ShardMap& map) {
  ThreadPool pool(3);
  Result<model::LoadedTensors> whole = LoadShard(model, map, {{}, &pool}, {}, {});
  for (const int64_t band_bytes : {1, 20000}) {  // a tile, and a few
    const Result<model::LoadedTensors> banded = LoadShard(model, map, {{}, &pool, band_bytes}, {}, {});
    EXPECT_EQ(whole.ok(), banded.ok());
    if (!whole.ok()) {
      EXPECT_EQ(whole.error().message, banded.error().message);
      continue;
    }
    for (const auto& [name, tensor] : *whole) {
      const device::Buffer &a = tensor.buffer, &b = banded->at(name).buffer;
      EXPECT_EQ(a.bytes(), b.bytes());
      EXPECT_TRUE(a.bytes() == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0) << name;
    }
  }
  return whole;
}

// Every tensor of every rank, for every cut: uneven, padded, overlapping, replicated.
void ExpectEveryShardLoaded(const OpenedModel& model, int64_t ranks) {
  for (const plan::AxisRule& axis : plan::AxisRules(model.geometry, ranks, 0)) {
    for (const plan::CutRule& cut : axis.cuts) {
      plan::LayoutOptions options;
      options.ranks = ranks;
      options.cuts[axis.axis] = cut.word;
      const Result<plan::Layout> layout = plan::MakeLayout(model.geometry, options);
      ASSERT_TRUE(layout.ok());
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const plan::ShardMap map = plan::MakeShardMap(model.geometry, *layout, rank, model.names);
        const Result<model::LoadedTensors> loaded = LoadWithThreads(model, map);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        ASSERT_EQ(loaded->size(), map.tensors.size());
        for (const plan::LocalTensor& local : map.tensors)
          ExpectLoaded(model.checkpoint, local, loaded->at(local.name));
      }
    }
  }
}

TEST(LoadShard, EverySliceIsItsSource) {
  support::SyntheticModel extents;
  extents.layers = 2;
  extents.attention_interval = 2;
  extents.experts = 3;
  extents.shared_width = 20;
  extents.expert_width = 40;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    extents.dtype = dtype;
    extents.some_f32 = dtype == DType::kBF16;
    const SmallModel small(extents);
    for (const int64_t ranks : {3, 7}) ExpectEveryShardLoaded(small.model(), ranks);  // seven: some have no heads
  }
}

constexpr const char* kTable = "model.embed_tokens.weight";

// A model without layers, whose table [rows, cols] has counted elements.
OpenedModel OneTable(const TempDir& dir, DType dtype, int64_t rows, int64_t cols) {
  const int64_t bytes = tensor::DTypeBits(dtype) / 8;
  const std::vector<TensorDecl> tensors = {{kTable, dtype, {rows, cols}}, {"model.norm.weight", DType::kF32, {cols}}};
  auto writer = checkpoint::SafetensorsWriter::Create(dir.Path("model.safetensors"), tensors, {});
  CHECK(writer.ok());
  std::vector<uint16_t> row(static_cast<size_t>((cols * bytes + 1) / 2));
  for (int64_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < row.size(); ++j)
      row[j] = static_cast<uint16_t>((static_cast<size_t>(i) * 7919 + j) % 0x7F00);
    CHECK(writer->Append(std::as_bytes(std::span(row)).first(static_cast<size_t>(cols * bytes))).ok());
  }
  CHECK(writer->Append(std::vector<std::byte>(static_cast<size_t>(cols * 4))).ok());
  CHECK(writer->Finish().ok());
  OpenedModel model;
  Result<Checkpoint> checkpoint = Checkpoint::Open(dir.Path(), &model.notices);
  CHECK_MSG(checkpoint.ok(), checkpoint.error().message);
  model.checkpoint = std::move(checkpoint).value();
  model.geometry.hidden = cols;
  model.geometry.vocab = rows;
  model.geometry.tied_head = true;
  model.names.prefix = "model.";
  return model;
}

plan::ShardMap OneSlice(const plan::Slice& slice, int64_t rows, int64_t cols) {
  return {{{"local", plan::Role::kMatrix, rows, cols, 128, {slice}}}};
}

// Rows longer than a staging buffer, a few columns of long rows, and many short rows.
TEST(LoadShard, PiecesOfEveryShape) {
  const TempDir dir;
  constexpr int64_t kLong = kStagingBytes / 2 + 1000;  // elements of two bytes: more than a buffer
  const OpenedModel wide = OneTable(dir, DType::kBF16, 3, kLong);
  for (const plan::Slice& slice :
       {plan::Slice{kTable, 1, 0, 2, kLong, 0, 0}, plan::Slice{kTable, 0, kLong - 10, 3, 10, 1, 2},
        plan::Slice{kTable, 2, 5, 1, kLong - 5, 0, 3}}) {
    const plan::ShardMap map = OneSlice(slice, slice.dst_row + slice.rows + 1, slice.dst_col + slice.cols + 1);
    const Result<model::LoadedTensors> loaded = LoadWithThreads(wide, map);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ExpectLoaded(wide.checkpoint, map.tensors[0], loaded->at("local"));
  }
  const OpenedModel tall = OneTable(dir, DType::kBF16, 5000, 40);
  plan::ShardMap map = OneSlice({kTable, 17, 3, 4900, 2, 5, 1}, 4999, 4);
  // Columns that become rows of several tiles; two parts, BF16 and float32, of which the first is no whole number of
  // tiles; and no columns at all.
  map.tensors.push_back({"turned", plan::Role::kMatrix, 40, 6, 128, {{kTable, 3, 0, 6, 40, 0, 0, 1, 1, true}}});
  const plan::Slice upper = {kTable, 0, 0, 40, 8, 0, 0}, lower = {"model.norm.weight", 0, 0, 40, 1, 40, 2};
  map.tensors.push_back({"parts", plan::Role::kMatrix, 90, 8, 128, {upper, lower}});
  map.tensors.push_back({"none", plan::Role::kMatrix, 40, 0, 128, {}});
  const Result<model::LoadedTensors> loaded = LoadWithThreads(tall, map);
  ASSERT_TRUE(loaded.ok());
  for (const plan::LocalTensor& local : map.tensors) ExpectLoaded(tall.checkpoint, local, loaded->at(local.name));
  EXPECT_EQ(loaded->at("parts").parts.size(), 2U);
}

// Rows and columns in another order than the file's: elements and whole blocks move, blocks that come apart become
// float32, and every value stays.
TEST(LoadShard, StoredOrdersAreUndone) {
  constexpr int64_t kRows = 8, kCols = 128;
  const TempDir dir;
  std::vector<float> values(kRows * kCols);
  std::string bytes;
  for (int64_t block = 0; block < kRows * kCols / 32; ++block) {
    bytes += checkpoint::Number(0x3800, 2);  // a scale of 0.5
    for (int64_t i = 0; i < 32; ++i) {
      const int64_t code = (block * 7 + i * 3) % 255 - 127;
      bytes += checkpoint::Number(static_cast<uint64_t>(code & 0xFF), 1);
      values[static_cast<size_t>(block * 32 + i)] = 0.5F * static_cast<float>(code);
    }
  }
  dir.Write("m.gguf", checkpoint::GgufBytes({}, {checkpoint::Entry(kTable, {kCols, kRows}, 8, 0)}, bytes));
  for (const int64_t run : {16, 32}) {
    OpenedModel model;
    Result<Checkpoint> checkpoint = Checkpoint::Open(dir.Path("m.gguf"), &model.notices);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    model.checkpoint = std::move(checkpoint).value();
    checkpoint::StoredOrder rows{2, 3, 2, 1}, cols{0, 2, 2, run};
    ASSERT_TRUE(model.checkpoint
                    .Remap([&](checkpoint::TensorInfo info) {
                      info.row_order = rows;
                      info.col_order = cols;
                      return std::vector<checkpoint::TensorInfo>{info};
                    })
                    .ok());
    model.geometry.hidden = kCols;
    model.geometry.vocab = kRows;
    model.geometry.tied_head = true;
    model.names.prefix = "model.";
    const Result<model::LoadedTensors> loaded =
        LoadWithThreads(model, OneSlice({kTable, 0, 0, kRows, kCols, 0, 0}, kRows, kCols));
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const model::LoadedTensor& local = loaded->at("local");
    ASSERT_EQ(local.parts.size(), 1U);
    EXPECT_EQ(local.parts[0].format, run == 32 ? kernels::WeightFormat::kQ8_0 : kernels::WeightFormat::kF32);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        ASSERT_EQ(At(local, row, col), values[static_cast<size_t>(rows.Stored(row) * kCols + cols.Stored(col))]);
      }
    }
  }
}

TEST(LoadShard, DecaysAreLogarithmsOfWhatIsStored) {
  const TempDir dir;
  OpenedModel model = OneTable(dir, DType::kF32, 2, 4);
  const auto load = [&](float stored) {
    const std::vector<TensorDecl> one = {{"a", DType::kF32, {1}}};
    auto writer = checkpoint::SafetensorsWriter::Create(dir.Path("decay.safetensors"), one, {});
    CHECK(writer.ok() && writer->Append(std::as_bytes(std::span(&stored, 1))).ok() && writer->Finish().ok());
    Result<Checkpoint> checkpoint = Checkpoint::Open(dir.Path("decay.safetensors"), &model.notices);
    CHECK(checkpoint.ok());
    model.checkpoint = std::move(checkpoint).value();
    CHECK(model.checkpoint
              .Remap([](checkpoint::TensorInfo info) {
                info.negated_exp = true;
                return std::vector<checkpoint::TensorInfo>{info};
              })
              .ok());
    return LoadWithThreads(model, {{{"local", plan::Role::kVector, 1, 1, 0, {{"a", 0, 0, 1, 1, 0, 0}}}}});
  };
  const Result<model::LoadedTensors> loaded = load(-std::exp(1.5F));
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_NEAR(loaded->at("local").buffer.As<float>()[0], 1.5F, 1e-6);
  for (const float wrong : {0.0F, 1.0F, -INFINITY, NAN}) {
    const Result<model::LoadedTensors> refused = load(wrong);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("expected numbers below 0"));
  }
}

TEST(LoadShard, AnUnknownDtypeIsNamed) {
  const TempDir dir;
  const OpenedModel model = OneTable(dir, DType::kI8, 2, 4);
  const Result<model::LoadedTensors> loaded = LoadWithThreads(model, OneSlice({kTable, 0, 0, 2, 4, 0, 0}, 2, 4));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kUnsupported);
  EXPECT_THAT(loaded.error().message, HasSubstr(kTable));
  EXPECT_THAT(loaded.error().message, HasSubstr("I8"));
}

TEST(LoadShard, AFileThatShrankIsAnError) {
  const SmallModel small;
  const Result<plan::Layout> layout = plan::MakeLayout(small.model().geometry, {});
  ASSERT_TRUE(layout.ok());
  const plan::ShardMap map = plan::MakeShardMap(small.model().geometry, *layout, 0, small.model().names);
  std::filesystem::resize_file(small.dir().Path("model.safetensors"), 5000);
  const Result<model::LoadedTensors> loaded = LoadWithThreads(small.model(), map);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kInvalid);
  EXPECT_THAT(loaded.error().message, HasSubstr("model.safetensors"));
}

TEST(LoadShard, TheCheckCanEndIt) {
  const SmallModel small;
  const Result<plan::Layout> layout = plan::MakeLayout(small.model().geometry, {});
  ASSERT_TRUE(layout.ok());
  const plan::ShardMap map = plan::MakeShardMap(small.model().geometry, *layout, 0, small.model().names);
  ThreadPool pool(2);
  for (const int64_t band_bytes : {0, 5000}) {
    int checks = 0, progress = 0;
    const auto check = [&]() -> Status { return ++checks < 3 ? Status() : MakeError(Code::kPeer, "a peer is gone"); };
    const Result<model::LoadedTensors> loaded = LoadShard(
        small.model(), map, {{}, &pool, band_bytes}, [&](int64_t, int64_t) { ++progress; }, check);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().message, "a peer is gone");
    EXPECT_EQ(checks, 3);
    EXPECT_EQ(progress, 3);
  }
}

}  // namespace
}  // namespace trivet::engine
