// SPDX-License-Identifier: Apache-2.0
// What a tensor of a checkpoint is to the family: what it becomes on a rank, along which axis it is cut, and which rank
// counts deal that axis out evenly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/geometry.h"
#include "plan/shard_map.h"
#include "plan/source_names.h"

namespace trivet::plan {

/// The use of one source tensor.
struct TensorUse {
  std::vector<std::string> parts;  // local tensors made of it (shard_map.h), "*" for any expert's slot
  Role role = Role::kMatrix;
  std::string axis;                 // as in --cut; empty when every rank holds all of it
  std::string units;                // of the axis, such as "4 KV groups"; empty without an axis
  std::vector<int64_t> even_ranks;  // counts in 1..kMaxRanks that deal whole units in equal numbers, without padding
};

/// "matrix", "embedding" or "vector".
const char* RoleName(Role role);

/// The use of every tensor that `geometry` needs, by its name in the checkpoint.
std::map<std::string, TensorUse> TensorUses(const Geometry& geometry, const SourceNames& names);

}  // namespace trivet::plan
