// SPDX-License-Identifier: Apache-2.0
// Safetensors files as text, for tests that need sound or malformed ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::checkpoint {

/// A header's length as the eight bytes that begin a file.
inline std::string LengthPrefix(uint64_t length) {
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix.push_back(static_cast<char>((length >> (8 * i)) & 0xff));
  return prefix;
}

/// A file with this header and this data, neither checked.
inline std::string FileBytes(std::string_view header, std::string_view data) {
  return LengthPrefix(header.size()) + std::string(header) + std::string(data);
}

/// A sound file of U8 vectors called `first`, and `second` when not empty, with 4 bytes each: "aaaa" and "bbbb".
inline std::string TwoTensorFile(const std::string& first, const std::string& second) {
  std::string header = "{\"" + first + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  if (!second.empty()) header += ",\"" + second + R"(":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})";
  return FileBytes(header + "}", second.empty() ? "aaaa" : "aaaabbbb");
}

}  // namespace trivet::checkpoint
