// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file, and as the tokenizer in its metadata.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/str.h"
#include "checkpoint/gguf.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trivet;
  const auto bytes = std::as_bytes(std::span(data, size));
  const checkpoint::ByteSource source = [&](int64_t offset, std::span<std::byte> dst) -> Status {
    CHECK(offset >= 0 && static_cast<size_t>(offset) + dst.size() <= size);
    std::copy_n(bytes.begin() + offset, dst.size(), dst.begin());
    return {};
  };
  const auto header = checkpoint::ParseGguf(source, static_cast<int64_t>(size), "fuzz");
  if (!header.ok()) return 0;
  // An accepted tensor lies within the file.
  for (const checkpoint::TensorInfo& info : header->tensors) {
    CHECK(info.bytes >= 0 && info.offset >= 0 && info.offset <= static_cast<int64_t>(size) - info.bytes);
  }
  (void)checkpoint::GgufSplitFiles("fuzz-00001-of-00003.gguf", *header);
  (void)text::GgufChatTemplate(header->metadata, true, "fuzz");
  (void)text::GgufSpecialTokens(header->metadata, "fuzz");
  const auto document = text::GgufTokenizerJson(header->metadata, "fuzz");
  if (!document.ok()) return 0;
  const auto tokenizer = text::Tokenizer::FromJson(*document, Json(), "fuzz");
  if (!tokenizer.ok()) return 0;
  const auto ids = tokenizer->Encode("Caf\u00e9 <s> abc  'S\n\u2581\U0001F642 12");
  if (ids.ok()) CHECK(IsUtf8(tokenizer->Decode(*ids, true)));
  return 0;
}
