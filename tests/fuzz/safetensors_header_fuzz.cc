// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file, and as a bare header: the first byte is then the size of the data.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "checkpoint/safetensors.h"

namespace {

using namespace trivet::checkpoint;

// An accepted header covers the data exactly.
void TryHeader(std::string_view json, int64_t file_bytes) {
  const auto header = ParseHeader(json, file_bytes, "fuzz");
  if (!header.ok()) return;
  int64_t end = kHeaderPrefixBytes + static_cast<int64_t>(json.size());
  for (const TensorInfo& info : header->tensors) {
    CHECK(info.offset == end && info.bytes >= 0);
    end += info.bytes;
  }
  CHECK(end == file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto bytes = std::as_bytes(std::span(text));
  const auto file_bytes = static_cast<int64_t>(size);
  const auto length = HeaderLength(bytes.first(std::min<size_t>(size, kHeaderPrefixBytes)), file_bytes, "fuzz");
  if (length.ok()) TryHeader(text.substr(kHeaderPrefixBytes, static_cast<size_t>(*length)), file_bytes);
  if (size > 0) TryHeader(text.substr(1), kHeaderPrefixBytes + file_bytes - 1 + data[0]);
  return 0;
}
