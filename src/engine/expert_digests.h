// SPDX-License-Identifier: Apache-2.0
// Digests of the experts that are in a rank's memory, by their values: the same however an expert is cut, padded or
// packed, so that what lies in a slot can be compared with what the checkpoint calls an expert.
#pragma once

#include <cstdint>
#include <string>

#include "base/hash.h"
#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/open_model.h"
#include "model/weights.h"
#include "plan/layout.h"

namespace trivet::engine {

/// Where a rank stands among those that hold experts.
struct ExpertPlace {
  int64_t rank = 0, ranks = 1;
  const plan::RankShard& shard;
};

/// {"experts": [{"layer", "slot", "logical", "digest"}] of the rank's slots, "reference": [{"layer", "expert",
/// "digest"}] of every ranks-th expert of the model, read from the checkpoint once more}. Both empty for a model
/// without experts. Errors:  those of loading.
Result<Json> ExpertDigests(const OpenedModel& model, const ExpertPlace& place, const model::LoadedTensors& tensors,
                           const device::Device& device, ThreadPool* pool);

/// The digest of all weights of a checkpoint: names, types, shapes and bytes; the same for any number of threads.
/// Errors:  those of reading.
Result<Digest> CheckpointDigest(const checkpoint::Checkpoint& checkpoint, ThreadPool* pool);

}  // namespace trivet::engine
