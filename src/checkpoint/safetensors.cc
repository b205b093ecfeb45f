// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/json.h"
#include "base/str.h"

namespace trivet::checkpoint {
namespace {

// Header object, tensor entry, shape or data_offsets: the schema nests no deeper.
constexpr int kHeaderDepth = 3;

Error Refuse(std::string_view what, std::string_view expected, std::string_view found) {
  return MakeError(Code::kInvalid, fmt::format("{}: expected {}, found {}; the file is damaged, fetch it again", what,
                                               expected, found));
}

std::string Shown(const Json& value) { return Quote(DumpJson(value), 80); }

// Text-level defects that a JSON parser would report in its own words or not at all.
Status CheckText(std::string_view json, std::string_view what) {
  if (!IsUtf8(json)) return Refuse(what, "a header in UTF-8", "bytes that are not");
  const size_t nul = json.find('\0');
  if (nul != std::string_view::npos) {
    return Refuse(what, "a header of JSON text", fmt::format("a NUL byte at byte {} of it", nul));
  }
  const size_t begin = json.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return Refuse(what, "a header that is a JSON object", "an empty header");
  if (json[begin] != '{') {
    return Refuse(what, "a header that is a JSON object", fmt::format("\"{}\"", Quote(json.substr(begin, 20))));
  }
  return {};
}

// The non-negative integers of array `key` of `entry`.
Result<std::vector<int64_t>> Integers(const Json& entry, const char* key, std::string_view what) {
  const Json* array = Find(entry, key);
  if (array == nullptr) return Refuse(what, fmt::format("\"{}\"", key), "none");
  std::vector<int64_t> values;
  bool sound = array->is_array();
  for (size_t i = 0; sound && i < array->size(); ++i) {
    const Json& item = (*array)[i];
    sound = item.is_number_unsigned() && item.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    if (sound) values.push_back(item.get<int64_t>());
  }
  if (!sound) {
    return Refuse(what, fmt::format("\"{}\" to be a list of non-negative integers below 2^63", key), Shown(*array));
  }
  return values;
}

// One tensor; its offset is still relative to the data.
Result<TensorInfo> ParseEntry(const std::string& name, const Json& entry, int64_t data_bytes, std::string_view file) {
  const std::string what = fmt::format("{}: tensor \"{}\"", file, Quote(name));
  if (name.find('\0') != std::string::npos) return Refuse(what, "a name without NUL characters", "one");
  if (!entry.is_object()) return Refuse(what, "an object with dtype, shape and data_offsets", Shown(entry));

  const Json* dtype_text = Find(entry, "dtype");
  if (dtype_text == nullptr) return Refuse(what, "\"dtype\"", "none");
  if (!dtype_text->is_string()) return Refuse(what, "\"dtype\" to be a string", Shown(*dtype_text));
  const auto dtype = tensor::ParseDType(dtype_text->get_ref<const std::string&>());
  if (!dtype.has_value()) return Refuse(what, "a dtype that safetensors defines", Shown(*dtype_text));

  TensorInfo info;
  info.name = name;
  info.dtype = *dtype;
  TRY_ASSIGN(info.shape, Integers(entry, "shape", what));
  TRY_ASSIGN(const std::vector<int64_t> offsets, Integers(entry, "data_offsets", what));
  if (offsets.size() != 2) {
    return Refuse(what, "\"data_offsets\" to be exactly two integers", fmt::format("{}", offsets.size()));
  }
  const int64_t begin = offsets[0], end = offsets[1];
  if (begin > end) return Refuse(what, "data that begins before it ends", fmt::format("[{}, {}]", begin, end));
  if (end > data_bytes) {
    return Refuse(what, fmt::format("data within the {} bytes after the header", data_bytes),
                  fmt::format("an end at {}", end));
  }
  info.offset = begin;
  TRY_ASSIGN(info.bytes, TensorBytes(info.dtype, info.shape, what));
  if (end - begin != info.bytes) {
    return Refuse(what, fmt::format("{} bytes for {} of {}", info.bytes, ShapeText(info.shape), DTypeName(info.dtype)),
                  fmt::format("{} between its offsets", end - begin));
  }
  return info;
}

Status ParseMetadata(const Json& object, std::string_view what, SafetensorsHeader* header) {
  if (!object.is_object()) return Refuse(what, "\"__metadata__\" to be an object", Shown(object));
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
    if (!value.is_string()) {
      return Refuse(what, fmt::format("\"__metadata__\" entry \"{}\" to be a string", Quote(key)), Shown(value));
    }
    header->metadata.emplace_back(key, value.get<std::string>());
  }
  return {};
}

// Sorts by position and requires that every byte of the data belongs to exactly one tensor.
Status CheckCover(std::vector<TensorInfo>* tensors, int64_t data_bytes, std::string_view what) {
  if (tensors->empty() && data_bytes > 0) {
    return Refuse(what, "no data, as the header names no tensor", fmt::format("{} bytes", data_bytes));
  }
  std::sort(tensors->begin(), tensors->end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  int64_t covered = 0;
  for (const TensorInfo& info : *tensors) {
    if (info.offset != covered) {
      return Refuse(
          fmt::format("{}: tensor \"{}\"", what, Quote(info.name)),
          fmt::format("data from {} on, where the tensor before ends", covered),
          fmt::format("{} at {}", info.offset < covered ? "an overlap" : "a hole up to its begin", info.offset));
    }
    covered += info.bytes;
  }
  if (covered != data_bytes) {
    return Refuse(what, fmt::format("the file to end with the last tensor, {} bytes after the header", covered),
                  fmt::format("{} bytes more", data_bytes - covered));
  }
  return {};
}

}  // namespace

Result<int64_t> HeaderLength(std::span<const std::byte> prefix, int64_t file_bytes, std::string_view what) {
  if (static_cast<int64_t>(prefix.size()) < kHeaderPrefixBytes) {
    return Refuse(what, "a safetensors file of at least 8 bytes", fmt::format("{} bytes", prefix.size()));
  }
  uint64_t length = 0;
  for (int i = 0; i < kHeaderPrefixBytes; ++i) {
    length |= std::to_integer<uint64_t>(prefix[static_cast<size_t>(i)]) << (8 * i);
  }
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return Refuse(what, fmt::format("a safetensors header of at most {} bytes", kMaxHeaderBytes),
                  fmt::format("a header length of {}", length));
  }
  if (static_cast<int64_t>(length) > file_bytes - kHeaderPrefixBytes) {
    return Refuse(what, fmt::format("a header within the file's {} bytes", file_bytes),
                  fmt::format("a header length of {}", length));
  }
  return static_cast<int64_t>(length);
}

Result<SafetensorsHeader> ParseHeader(std::string_view json, int64_t file_bytes, std::string_view what) {
  const int64_t data_begin = kHeaderPrefixBytes + static_cast<int64_t>(json.size());
  CHECK_MSG(data_begin <= file_bytes, fmt::format("{}: {} of {}", what, data_begin, file_bytes));
  const int64_t data_bytes = file_bytes - data_begin;
  TRY(CheckText(json, what));
  TRY_ASSIGN(const Json root, ParseJson(json, fmt::format("{}: header", what), {kMaxHeaderBytes, kHeaderDepth}));

  SafetensorsHeader header;
  for (const auto& [name, entry] : root.get_ref<const Json::object_t&>()) {
    if (name == kMetadataKey) {
      TRY(ParseMetadata(entry, what, &header));
      continue;
    }
    TRY_ASSIGN(TensorInfo info, ParseEntry(name, entry, data_bytes, what));
    header.tensors.push_back(std::move(info));
  }
  TRY(CheckCover(&header.tensors, data_bytes, what));
  for (TensorInfo& info : header.tensors) info.offset += data_begin;
  return header;
}

Result<SafetensorsFile> OpenSafetensors(const std::string& path) {
  TRY_ASSIGN(io::File file, io::File::Open(path));
  TRY_ASSIGN(const int64_t file_bytes, file.Size());
  std::array<std::byte, kHeaderPrefixBytes> prefix{};
  const auto found = std::span(prefix).first(static_cast<size_t>(std::min(file_bytes, kHeaderPrefixBytes)));
  TRY(file.ReadAt(0, found));
  TRY_ASSIGN(const int64_t length, HeaderLength(found, file_bytes, path));
  std::string json(static_cast<size_t>(length), '\0');
  TRY(file.ReadAt(kHeaderPrefixBytes, std::as_writable_bytes(std::span(json))));
  TRY_ASSIGN(SafetensorsHeader header, ParseHeader(json, file_bytes, path));
  return SafetensorsFile{std::move(file), file_bytes, std::move(header)};
}

}  // namespace trivet::checkpoint
