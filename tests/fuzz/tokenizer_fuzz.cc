// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json and a text. The input is the file, a zero byte, and the text; without a zero byte the
// text is a short one.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/str.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trivet;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string text = zero == std::string_view::npos ? std::string("Caf\u00e9 <s> 12  'S\n\u2581\U0001F642")
                                                          : RepairUtf8(input.substr(zero + 1));
  const auto json = ParseJson(input.substr(0, zero), "fuzz");
  if (!json.ok()) return 0;
  const auto tokenizer = text::Tokenizer::FromJson(*json, Json(), "fuzz");
  if (!tokenizer.ok()) return 0;
  for (const bool special : {false, true}) {
    const auto ids = tokenizer->Encode(text, {special, !special});
    if (!ids.ok()) continue;
    for (const TokenId id : *ids) CHECK(id >= 0 && id < tokenizer->vocab_size());
    CHECK(IsUtf8(tokenizer->Decode(*ids, special)));
  }
  return 0;
}
