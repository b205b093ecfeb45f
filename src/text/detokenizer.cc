// SPDX-License-Identifier: Apache-2.0
#include "text/detokenizer.h"

#include "text/tokenizer.h"

namespace trivet::text {

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer* tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special), stream_(&tokenizer->decoder_) {}

std::string StreamingDetokenizer::Push(TokenId id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return text;
  const std::string_view piece = tokenizer_->DecoderPiece(id);
  if (!piece.empty()) stream_.Push(piece, &text);
  return text;
}

std::string StreamingDetokenizer::Flush() {
  std::string text;
  stream_.Flush(&text);
  return text;
}

}  // namespace trivet::text
