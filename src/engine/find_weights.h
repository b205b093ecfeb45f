// SPDX-License-Identifier: Apache-2.0
// From the names that a plan has for weights to the tensors that hold them.
#pragma once

#include <string>
#include <unordered_map>

#include "base/result.h"
#include "checkpoint/stored_weight.h"
#include "engine/open_model.h"
#include "plan/shard_map.h"

namespace trivet::engine {

/// How a checkpoint stores weights, by their names in plans.
using StoredWeights = std::unordered_map<std::string, checkpoint::StoredWeight>;

/// How the checkpoint stores every weight that `map` takes from. A packed one has its logical shape from the geometry,
/// one the geometry does not know its own.
/// Errors:  those of checkpoint::FindWeight.
Result<StoredWeights> FindWeights(const OpenedModel& model, const plan::ShardMap& map);

}  // namespace trivet::engine
