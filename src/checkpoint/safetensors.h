// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: what it claims is checked against what the file can hold before anything is
// believed. The functions on bytes are pure; OpenSafetensors applies them to a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/tensor_info.h"
#include "io/file.h"

namespace trivet::checkpoint {

/// Longest header the format allows.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

/// Bytes before the header: its length, little-endian.
inline constexpr int64_t kHeaderPrefixBytes = 8;

/// The key that holds text about the file and is no tensor.
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// What a header says. `tensors` are in file order, cover the data exactly, and have file = 0.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// The header's length.
///   prefix   the file's first kHeaderPrefixBytes bytes, or the whole file when it is shorter
///   what     the file's name for messages
/// Errors:  kInvalid when the prefix is short, or the length exceeds kMaxHeaderBytes or what the file can hold.
Result<int64_t> HeaderLength(std::span<const std::byte> prefix, int64_t file_bytes, std::string_view what);

/// Parses a header.
///   json     the bytes after the prefix, as many as HeaderLength said; the data begins where they end
///   what     the file's name for messages
/// Errors:  kInvalid, with a message of its own for each defect.
Result<SafetensorsHeader> ParseHeader(std::string_view json, int64_t file_bytes, std::string_view what);

/// A file, its length when the header was read, and the header.
struct SafetensorsFile {
  io::File file;
  int64_t file_bytes = 0;
  SafetensorsHeader header;
};

/// Opens a file and reads its header, no tensor.  Errors: those of io::File, HeaderLength and ParseHeader.
Result<SafetensorsFile> OpenSafetensors(const std::string& path);

}  // namespace trivet::checkpoint
