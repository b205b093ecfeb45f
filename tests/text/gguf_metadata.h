// SPDX-License-Identifier: Apache-2.0
// Small tokenizers as GGUF metadata, for tests that change one key of a sound file.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "text/unicode.h"

namespace trivet::text {

/// Appends a token with its type and score.
inline void AddToken(Json* metadata, std::string_view piece, int type, double score) {
  (*metadata)["tokenizer.ggml.tokens"].push_back(piece);
  (*metadata)["tokenizer.ggml.token_type"].push_back(type);
  (*metadata)["tokenizer.ggml.scores"].push_back(score);
}

/// SentencePiece: <unk> 0, <s> 1, </s> 2, "  " 3 (user-defined), bytes from 4 on, then pieces from 260 on.
inline Json SentencePieceMetadata() {
  Json metadata = {{"tokenizer.ggml.model", "llama"},
                   {"tokenizer.ggml.tokens", Json::array()},
                   {"tokenizer.ggml.token_type", Json::array()},
                   {"tokenizer.ggml.scores", Json::array()},
                   {"tokenizer.ggml.bos_token_id", 1},
                   {"tokenizer.ggml.eos_token_id", 2},
                   {"tokenizer.ggml.unknown_token_id", 0}};
  AddToken(&metadata, "<unk>", 2, 0);
  AddToken(&metadata, "<s>", 3, 0);
  AddToken(&metadata, "</s>", 3, 0);
  AddToken(&metadata, "  ", 4, -1000);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    AddToken(&metadata, std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", 6, 0);
  }
  double score = 0;
  for (const char* piece : {"ab", "bc", "\u2581a", "abc", "<s", "s>", "a", "b", "c", "\u2581", "<", "s", ">"}) {
    AddToken(&metadata, piece, 1, score--);
  }
  return metadata;
}

/// Byte-level BPE: the bytes as ids 0 to 255, "ab" 256, "abc" 257, "Ġa" 258, <|end|> 259 (control), <think> 260
/// (user-defined).
inline Json ByteLevelMetadata() {
  Json metadata = {{"tokenizer.ggml.model", "gpt2"},
                   {"tokenizer.ggml.pre", "gpt-2"},
                   {"tokenizer.ggml.tokens", Json::array()},
                   {"tokenizer.ggml.token_type", Json::array()},
                   {"tokenizer.ggml.merges", {"a b", "ab c", "\u0120 a"}},
                   {"tokenizer.ggml.eos_token_id", 259}};
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    AppendByteLevel(std::string(1, static_cast<char>(byte)), &piece);
    metadata["tokenizer.ggml.tokens"].push_back(piece);
    metadata["tokenizer.ggml.token_type"].push_back(1);
  }
  for (const auto& [piece, type] : std::initializer_list<std::pair<const char*, int>>{
           {"ab", 1}, {"abc", 1}, {"\u0120a", 1}, {"<|end|>", 3}, {"<think>", 4}}) {
    metadata["tokenizer.ggml.tokens"].push_back(piece);
    metadata["tokenizer.ggml.token_type"].push_back(type);
  }
  return metadata;
}

}  // namespace trivet::text
