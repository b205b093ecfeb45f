// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/str.h"

namespace trivet::checkpoint {
namespace {

Error Refuse(std::string_view what, std::string_view expected, std::string_view found) {
  return MakeError(Code::kInvalid, fmt::format("{}: expected {}, found {}; correct the index or fetch it again", what,
                                               expected, found));
}

// A shard must lie beside its index: a name that could lead elsewhere is refused.
bool IsPlainName(const std::string& name) {
  const bool separator = name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos;
  return !name.empty() && !separator && name.find("..") == std::string::npos && name != ".";
}

}  // namespace

Result<ShardIndex> ParseShardIndex(std::string_view json, std::string_view what) {
  TRY_ASSIGN(const Json root, ParseJson(json, what));
  const Json* map = Find(root, "weight_map");
  if (map == nullptr) return Refuse(what, "\"weight_map\"", "none");
  if (!map->is_object()) return Refuse(what, "\"weight_map\" to be an object", map->type_name());

  ShardIndex index;
  std::map<std::string, int> shards;
  for (const auto& [tensor, value] : map->get_ref<const Json::object_t&>()) {
    if (!value.is_string()) {
      return Refuse(what, fmt::format("a file name for tensor \"{}\"", Quote(tensor)), value.type_name());
    }
    const std::string& shard = value.get_ref<const std::string&>();
    if (!IsPlainName(shard)) {
      return Refuse(what, fmt::format("a file name without path for tensor \"{}\"", Quote(tensor)),
                    fmt::format("\"{}\"", Quote(shard)));
    }
    shards.emplace(shard, 0);
  }
  for (auto& [shard, position] : shards) {
    position = static_cast<int>(index.shards.size());
    index.shards.push_back(shard);
  }
  for (const auto& [tensor, value] : map->get_ref<const Json::object_t&>()) {
    index.weight_map.emplace_back(tensor, shards.at(value.get_ref<const std::string&>()));
  }
  std::sort(index.weight_map.begin(), index.weight_map.end());

  const Json* metadata = Find(root, "metadata");
  const Json* total = metadata == nullptr ? nullptr : Find(*metadata, "total_size");
  if (total != nullptr && !total->is_number()) {
    return Refuse(what, "\"metadata.total_size\" to be a number", total->type_name());
  }
  if (total != nullptr) index.total_size = total->get<double>();
  return index;
}

}  // namespace trivet::checkpoint
