// SPDX-License-Identifier: Apache-2.0
// MemoryPlan: what a loaded model takes, rank by rank, within a budget. Pure data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace trivet::plan {

/// Memory of one rank.   Units: bytes.
struct RankMemory {
  int64_t weights = 0;
  int64_t kv = 0;         // pages of keys and values
  int64_t states = 0;     // of the sequences that run: recurrent states, and rings of layers with a sliding window
  int64_t snapshots = 0;  // of these, for the prefix cache
  int64_t scratch = 0;    // activations and logits of the largest step

  int64_t total() const { return weights + kv + states + snapshots + scratch; }
};

/// Memory of all ranks, which share one machine.
struct MemoryPlan {
  std::string source;     // whose memory it is, such as "machine"
  int64_t available = 0;  // of it when the plan was made
  int64_t budget = 0;     // for all ranks together
  int64_t kv_tokens = 0;  // that the KV cache of a replica holds, of all its sequences together
  int64_t context = 0;    // tokens that one sequence may have
  int64_t sequences = 0;  // that run at once
  int64_t snapshots = 0;  // slots
  int64_t replicas = 1;   // each of which has so many tokens, sequences and slots
  std::vector<RankMemory> ranks;

  int64_t total() const;
};

/// The plan as JSON.
Json MemoryJson(const MemoryPlan& memory);

}  // namespace trivet::plan
