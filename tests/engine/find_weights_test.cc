// SPDX-License-Identifier: Apache-2.0
#include "engine/find_weights.h"

#include <gtest/gtest.h>

#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

TEST(FindWeights, KnowsHowEverySourceIsStored) {
  support::SyntheticModel extents;
  extents.expert_width = 64;
  extents.dtype = tensor::DType::kMxfp4;
  const SmallModel small(extents);
  const OpenedModel& model = small.model();
  const plan::Layout layout = plan::MakeLayout(model.geometry, {}).value();
  const plan::ShardMap map = plan::MakeShardMap(model.geometry, layout, 0, model.names);
  const StoredWeights weights = FindWeights(model, map).value();
  int64_t packed = 0;
  for (const plan::LocalTensor& local : map.tensors) {
    for (const plan::Slice& slice : local.slices) {
      const checkpoint::StoredWeight& weight = weights.at(slice.source);
      EXPECT_GE(weight.rows, slice.src_row + (slice.rows - 1) * slice.row_step + 1) << slice.source;
      EXPECT_GE(weight.cols, slice.src_col + (slice.cols - 1) * slice.col_step + 1) << slice.source;
      packed += weight.storage == checkpoint::Storage::kMxfp4;
    }
  }
  EXPECT_GT(packed, 0);
}

}  // namespace
}  // namespace trivet::engine
