// SPDX-License-Identifier: Apache-2.0
// Any text as model.safetensors.index.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "checkpoint/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto index = trivet::checkpoint::ParseShardIndex(text, "fuzz");
  if (!index.ok()) return 0;
  for (const auto& [name, shard] : index->weight_map) CHECK(static_cast<size_t>(shard) < index->shards.size());
  for (const auto& shard : index->shards) CHECK(shard.find('/') == std::string::npos);
  return 0;
}
