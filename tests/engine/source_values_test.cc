// SPDX-License-Identifier: Apache-2.0
#include "engine/source_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "checkpoint/writer.h"
#include "engine/find_weights.h"
#include "engine/load.h"
#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

using checkpoint::Checkpoint;
using tensor::DType;

// One tensor [rows, cols] of float32 that count from 0.
Checkpoint Counted(const TempDir& dir, int64_t rows, int64_t cols) {
  const std::vector<checkpoint::TensorDecl> tensors = {{"x", DType::kF32, {rows, cols}}};
  auto writer = checkpoint::SafetensorsWriter::Create(dir.Path("model.safetensors"), tensors, {});
  CHECK(writer.ok());
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  CHECK(writer->Append(std::as_bytes(std::span(values))).ok());
  CHECK(writer->Finish().ok());
  std::vector<std::string> notices;
  return Checkpoint::Open(dir.Path(), &notices).value();
}

TEST(ReadValues, SlicesWithStepsGoWhereStridesSay) {
  const TempDir dir;
  const int64_t rows = 400, cols = 70;  // more rows than one read has
  const Checkpoint checkpoint = Counted(dir, rows, cols);
  const checkpoint::StoredWeight weight =
      checkpoint::FindWeight(checkpoint, {}, "x", std::vector<int64_t>{rows, cols}).value();
  ThreadPool pool(3);
  for (const plan::Slice& slice :
       {plan::Slice{"x", 0, 0, rows, cols, 0, 0}, plan::Slice{"x", 3, 5, 390, 61, 0, 0},
        plan::Slice{"x", 1, 2, 190, 20, 0, 0, 2, 3}, plan::Slice{"x", 7, 11, 3, 1, 0, 0, 100, 1}}) {
    for (const bool across : {false, true}) {
      const int64_t row_stride = across ? 1 : slice.cols + 3, col_stride = across ? slice.rows + 2 : 1;
      std::vector<float> values(static_cast<size_t>((slice.rows + 2) * (slice.cols + 3)), -1.0F);
      ASSERT_TRUE(ReadValues(checkpoint, weight, slice, {values.data(), row_stride, col_stride}, &pool).ok());
      int64_t wrong = 0, written = 0;
      for (const float value : values) written += value >= 0;
      for (int64_t row = 0; row < slice.rows; ++row) {
        for (int64_t col = 0; col < slice.cols; ++col) {
          const int64_t from = (slice.src_row + row * slice.row_step) * cols + slice.src_col + col * slice.col_step;
          wrong += values[static_cast<size_t>(row * row_stride + col * col_stride)] != static_cast<float>(from);
        }
      }
      EXPECT_EQ(wrong, 0) << slice.src_row << ' ' << across;
      EXPECT_EQ(written, slice.rows * slice.cols) << slice.src_row << ' ' << across;
    }
  }
}

// What loading packs, element by element, for every storage.
TEST(ReadValues, GivesWhatIsLoaded) {
  ThreadPool pool(2);
  support::SyntheticModel extents;
  extents.layers = 2;
  extents.attention_interval = 2;
  extents.expert_width = 64;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kMxfp4}) {
    extents.dtype = dtype;
    extents.fused_experts = dtype != DType::kF16;
    const SmallModel small(extents);
    const OpenedModel& model = small.model();
    plan::LayoutOptions options;
    options.ranks = 3;
    const plan::Layout layout = plan::MakeLayout(model.geometry, options).value();
    const plan::ShardMap map = plan::MakeShardMap(model.geometry, layout, 1, model.names);
    const StoredWeights weights = FindWeights(model, map).value();
    const model::LoadedTensors loaded = LoadShard(model, map, {{}, &pool}, {}, {}).value();
    for (const plan::LocalTensor& local : map.tensors) {
      if (local.role == plan::Role::kVector) continue;
      std::vector<float> values(static_cast<size_t>(local.rows * local.cols));
      for (const plan::Slice& slice : local.slices) {
        ValuesAt to = ValuesAt{values.data(), local.cols, 1}.From(slice.dst_row, slice.dst_col);
        if (slice.transposed) std::swap(to.row_stride, to.col_stride);
        ASSERT_TRUE(ReadValues(model.checkpoint, weights.at(slice.source), slice, to, &pool).ok());
      }
      int64_t wrong = 0;
      const model::LoadedTensor& tensor = loaded.at(local.name);
      for (const model::LoadedPart& part : tensor.parts) {
        for (int64_t row = 0; row < part.rows; ++row) {
          for (int64_t col = 0; col < local.cols; ++col) {
            wrong += kernels::Element(tensor.Packed(part), row, col) !=
                     values[static_cast<size_t>((part.row + row) * local.cols + col)];
          }
        }
      }
      EXPECT_EQ(wrong, 0) << local.name << ' ' << tensor::DTypeName(dtype);
    }
  }
}

}  // namespace
}  // namespace trivet::engine
