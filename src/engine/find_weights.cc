// SPDX-License-Identifier: Apache-2.0
#include "engine/find_weights.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace trivet::engine {

Result<StoredWeights> FindWeights(const OpenedModel& model, const plan::ShardMap& map) {
  std::unordered_map<std::string, std::vector<int64_t>> shapes;
  for (plan::SourceTensor& needed : plan::RequiredTensors(model.geometry, model.names)) {
    shapes.emplace(std::move(needed.name), std::move(needed.shape));
  }
  StoredWeights weights;
  for (const plan::LocalTensor& local : map.tensors) {
    for (const plan::Slice& slice : local.slices) {
      if (weights.contains(slice.source)) continue;
      const checkpoint::TensorInfo* info = model.checkpoint.Find(slice.source);
      const auto known = shapes.find(slice.source);
      CHECK(known != shapes.end() || info != nullptr);
      TRY_ASSIGN(checkpoint::StoredWeight weight,
                 checkpoint::FindWeight(model.checkpoint, model.quant, slice.source,
                                        known != shapes.end() ? known->second : info->shape));
      weights.emplace(slice.source, weight);
    }
  }
  return weights;
}

}  // namespace trivet::engine
