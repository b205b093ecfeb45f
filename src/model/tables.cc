// SPDX-License-Identifier: Apache-2.0
#include "model/tables.h"

#include <vector>

#include "base/staging.h"

namespace trivet::model {

Result<Tables> Tables::Make(const device::Device& device, const plan::Geometry& geometry, const plan::RankShard& shard,
                            const StepSize& size) {
  std::vector<int32_t> slot_of(static_cast<size_t>(geometry.moe.experts), -1);
  for (size_t slot = 0; slot < shard.experts.slots.size(); ++slot) {
    const int64_t expert = shard.experts.slots[slot];
    if (expert >= 0) slot_of[static_cast<size_t>(expert)] = static_cast<int32_t>(slot);
  }
  constexpr float kOne = 1;
  constexpr uint32_t kNoFlags = 0;
  Staging staging;
  const size_t q_to_kv = staging.Add(std::span<const int32_t>(shard.attention.q_to_kv));
  const size_t v_to_k = staging.Add(std::span<const int32_t>(shard.delta_net.v_to_k));
  const size_t slots = staging.Add(std::span<const int32_t>(slot_of));
  const size_t one = staging.Add(std::span(&kOne, 1)), flags = staging.Add(std::span(&kNoFlags, 1));

  Tables tables;
  tables.staged_bytes = StagedBytes(geometry, size);
  TRY_ASSIGN(tables.memory, device::Buffer::Make(device, staging.bytes(), "tables of heads and experts"));
  std::byte* there = tables.memory.data();
  device.Upload(there, staging.data(), staging.bytes());
  tables.q_to_kv = reinterpret_cast<const int32_t*>(there + q_to_kv);
  tables.v_to_k = reinterpret_cast<const int32_t*>(there + v_to_k);
  tables.slot_of = reinterpret_cast<const int32_t*>(there + slots);
  tables.one = reinterpret_cast<const float*>(there + one);
  tables.flags = reinterpret_cast<std::atomic<uint32_t>*>(there + flags);
  return tables;
}

}  // namespace trivet::model
