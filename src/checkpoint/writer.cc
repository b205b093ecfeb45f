// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_set>

#include "base/json.h"
#include "base/str.h"
#include "checkpoint/safetensors.h"

namespace trivet::checkpoint {
namespace {

bool IsWritableName(const std::string& name) {
  return IsUtf8(name) && name.find('\0') == std::string::npos && name != kMetadataKey;
}

// The header's text, padded so that the data begins at a multiple of 8; adds the data's size to `data_bytes`.
Result<std::string> HeaderText(std::span<const TensorDecl> tensors, const SafetensorsWriter::Metadata& metadata,
                               int64_t* data_bytes) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    Json object = Json::object();
    for (const auto& [key, value] : metadata) object[key] = value;
    members.push_back(fmt::format("\"{}\":{}", kMetadataKey, DumpJson(object)));
  }
  std::unordered_set<std::string_view> names;
  for (const TensorDecl& tensor : tensors) {
    const std::string what = fmt::format("tensor \"{}\"", Quote(tensor.name));
    if (!IsWritableName(tensor.name) || !names.insert(tensor.name).second) {
      return MakeError(Code::kInvalid, fmt::format("{}: expected a unique UTF-8 name that safetensors allows, found "
                                                   "another; rename the tensor",
                                                   what));
    }
    TRY_ASSIGN(const int64_t bytes, TensorBytes(tensor.dtype, tensor.shape, what));
    const int64_t begin = *data_bytes;
    if (__builtin_add_overflow(begin, bytes, data_bytes)) {
      return MakeError(Code::kCapacity, fmt::format("{}: expected a file below 2^63 bytes, found more; write fewer "
                                                    "tensors",
                                                    what));
    }
    members.push_back(fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                                  DumpJson(tensor.name), DTypeName(tensor.dtype), fmt::join(tensor.shape, ","), begin,
                                  *data_bytes));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path, std::span<const TensorDecl> tensors,
                                                    const Metadata& metadata) {
  int64_t data_bytes = 0;
  TRY_ASSIGN(const std::string header, HeaderText(tensors, metadata, &data_bytes));
  if (static_cast<int64_t>(header.size()) > kMaxHeaderBytes) {
    return MakeError(Code::kCapacity, fmt::format("{}: expected a header of at most {} bytes, found {}; write fewer "
                                                  "tensors into one file",
                                                  path, kMaxHeaderBytes, header.size()));
  }
  TRY_ASSIGN(io::FileWriter file, io::FileWriter::Create(path));
  std::string prefix;
  for (int i = 0; i < kHeaderPrefixBytes; ++i) {
    prefix.push_back(static_cast<char>((static_cast<uint64_t>(header.size()) >> (8 * i)) & 0xffu));
  }
  TRY(file.Append(std::as_bytes(std::span(prefix))));
  TRY(file.Append(std::as_bytes(std::span(header))));
  return SafetensorsWriter(std::move(file), data_bytes);
}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) > remaining_bytes_) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected at most {} more bytes of tensors, found {}; append what "
                                                 "was declared",
                                                 file_.path(), remaining_bytes_, bytes.size()));
  }
  TRY(file_.Append(bytes));
  remaining_bytes_ -= static_cast<int64_t>(bytes.size());
  return {};
}

Status SafetensorsWriter::Finish() {
  if (remaining_bytes_ != 0) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected {} more bytes of tensors, found the end; append what was "
                                 "declared",
                                 file_.path(), remaining_bytes_));
  }
  return file_.Commit();
}

}  // namespace trivet::checkpoint
