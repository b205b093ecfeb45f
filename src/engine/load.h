// SPDX-License-Identifier: Apache-2.0
// Loading one rank's shard: allocate it, filled neutrally, then copy the real slices into it.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/open_model.h"
#include "model/weights.h"
#include "plan/shard_map.h"

namespace trivet::engine {

/// Bytes of one staging buffer. There are two, so that the next piece is read while the last one is stored; they are
/// all the memory loading needs besides the shard itself and, on a GPU, two of the largest bands.
inline constexpr int64_t kStagingBytes = int64_t{8} << 20;

/// Bytes that are put together on the host before they go to a GPU. There are two, so that one is copied while the next
/// is put together. Vectors, and matrices with rows that stand as columns in the file, are one band, whatever they
/// have.
inline constexpr int64_t kBandBytes = int64_t{32} << 20;

/// Called now and then with the bytes read so far and the bytes there are to read.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

/// Called after every piece: an error ends loading. Where a rank shows that it lives and learns that others do not.
using LoadCheck = std::function<Status()>;

/// Where weights go, and who stores them.
struct LoadTarget {
  device::Device device;
  ThreadPool* pool = nullptr;
  /// Most bytes of a band, or one tile, or what kBandBytes says; 0: weights are put together where they stay, as a
  /// processor lets.
  int64_t band_bytes = 0;
};

/// Loads the tensors of `map` from the model's checkpoint: one more thread reads while those of the pool store.
///   progress, check  may be empty
/// Ranks:   local.
/// Errors:  kCapacity, kIo; those of `check`; kInvalid for weights that are not finite.
Result<model::LoadedTensors> LoadShard(const OpenedModel& model, const plan::ShardMap& map, const LoadTarget& target,
                                       const LoadProgress& progress, const LoadCheck& check);

}  // namespace trivet::engine
