// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace trivet::checkpoint {

/// An index. Shards are plain file names in the index's own directory.
struct ShardIndex {
  std::vector<std::string> shards;                      // sorted, each named once
  std::vector<std::pair<std::string, int>> weight_map;  // tensor name and index into `shards`, sorted by name
  std::optional<double> total_size;                     // metadata.total_size, bytes; some writers give a fraction
};

/// Parses an index.
///   what     the file's name for messages
/// Errors:  kInvalid, with a message of its own for each defect.
Result<ShardIndex> ParseShardIndex(std::string_view json, std::string_view what);

}  // namespace trivet::checkpoint
