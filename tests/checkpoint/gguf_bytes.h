// SPDX-License-Identifier: Apache-2.0
// GGUF files as bytes, for tests that need sound or malformed ones.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace trivet::checkpoint {

/// Little-endian bytes of an unsigned number.
inline std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  return text;
}

/// A length and the bytes.
inline std::string LengthAndText(std::string_view text) { return Number(text.size(), 8) + std::string(text); }

/// A metadata pair from its type and the bytes of its value.
inline std::string Pair(std::string_view key, uint32_t type, std::string_view value) {
  return LengthAndText(key) + Number(type, 4) + std::string(value);
}
inline std::string PairU32(std::string_view key, uint32_t value) { return Pair(key, 4, Number(value, 4)); }
inline std::string PairText(std::string_view key, std::string_view value) { return Pair(key, 8, LengthAndText(value)); }

/// The type and bytes of a JSON value: strings, booleans, i32, f32, and arrays of what their first element is.
inline std::pair<uint32_t, std::string> ValueOf(const Json& value) {
  if (value.is_string()) return {8, LengthAndText(value.get<std::string>())};
  if (value.is_boolean()) return {7, Number(value.get<bool>() ? 1 : 0, 1)};
  if (value.is_number_float()) return {6, Number(std::bit_cast<uint32_t>(value.get<float>()), 4)};
  if (!value.is_array()) return {5, Number(static_cast<uint32_t>(value.get<int32_t>()), 4)};
  const uint32_t type = value.empty() ? 8 : ValueOf(value[0]).first;
  std::string bytes = Number(type, 4) + Number(value.size(), 8);
  for (const Json& element : value) bytes += ValueOf(element).second;
  return {9, bytes};
}
/// Metadata pairs of an object's members.
inline std::vector<std::string> PairsOf(const Json& object) {
  std::vector<std::string> pairs;
  for (const auto& [key, value] : object.items()) {
    const auto [type, bytes] = ValueOf(value);
    pairs.push_back(Pair(key, type, bytes));
  }
  return pairs;
}

/// A tensor's entry; dims fastest first.
inline std::string Entry(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
  std::string text = LengthAndText(name) + Number(dims.size(), 4);
  for (const uint64_t extent : dims) text += Number(extent, 8);
  return text + Number(type, 4) + Number(offset, 8);
}

/// A file of these pairs and entries and `data` from the next multiple of 32 on, none of it checked.
inline std::string GgufBytes(const std::vector<std::string>& pairs, const std::vector<std::string>& entries,
                             std::string_view data) {
  std::string file = "GGUF" + Number(3, 4) + Number(entries.size(), 8) + Number(pairs.size(), 8);
  for (const std::string& pair : pairs) file += pair;
  for (const std::string& entry : entries) file += entry;
  file.resize((file.size() + 31) / 32 * 32);
  return file + std::string(data);
}

}  // namespace trivet::checkpoint
