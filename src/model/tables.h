// SPDX-License-Identifier: Apache-2.0
// What the plan says about a rank's heads and experts, where kernels read it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "device/buffer.h"
#include "model/step_view.h"
#include "plan/geometry.h"
#include "plan/layout.h"

namespace trivet::model {

/// Small arrays that layers hand to kernels, and one word that kernels write.
struct Tables {
  const int32_t* q_to_kv = nullptr;        // [q_heads]
  const int32_t* v_to_k = nullptr;         // [v_heads]
  const int32_t* slot_of = nullptr;        // [E] local slot of each expert, or -1
  const float* one = nullptr;              // 1.0, the input of biases that are columns of a sum
  std::atomic<uint32_t>* flags = nullptr;  // kernels::RangeFlags of the steps so far
  int64_t staged_bytes = 0;                // scratch for what a step brings; the same for all, so that the rest of a
                                           // step's scratch does not move
  device::Buffer memory;                   // that holds them all

  ///   size  the largest step
  /// Errors:  kCapacity.
  static Result<Tables> Make(const device::Device& device, const plan::Geometry& geometry, const plan::RankShard& shard,
                             const StepSize& size);
};

}  // namespace trivet::model
