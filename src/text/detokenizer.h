// SPDX-License-Identifier: Apache-2.0
// Text from tokens as they are generated.
#pragma once

#include <string>

#include "base/ids.h"
#include "text/decoder.h"

namespace trivet::text {

class Tokenizer;

/// Decodes one sequence token by token, in constant time per token. What it returns, put together, is
/// Tokenizer::Decode of all tokens, and no part ends inside a character.
class StreamingDetokenizer {
 public:
  ///   tokenizer      stays in place while this is used
  ///   skip_special   leave special tokens out
  StreamingDetokenizer(const Tokenizer* tokenizer, bool skip_special);

  /// The text that `id` makes certain; empty while a character, or a run of byte tokens, is incomplete.
  std::string Push(TokenId id);
  /// The text still held, incomplete characters as U+FFFD; the next Push begins a new sequence.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Decoder::Stream stream_;
};

}  // namespace trivet::text
