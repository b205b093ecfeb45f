// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a checkpoint: text to token ids and back, as the tokenizers library does it for the same
// tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace trivet::text {

/// How a text is encoded.
struct EncodeOptions {
  bool add_special_tokens = true;  // put the tokens of the post-processor around the text
  bool parse_special = true;       // false: special tokens written in the text are plain text
};

/// A tokenizer with a BPE model. Const and thread-safe once loaded. Move-only.
class Tokenizer {
 public:
  /// Builds one from parsed files.
  ///   tokenizer_json     tokenizer.json; "truncation" and "padding" are ignored
  ///   tokenizer_config   tokenizer_config.json or null; only added tokens that tokenizer.json lacks are taken from it.
  ///                      Its add_bos_token and add_eos_token are not: the post-processor says what is added.
  ///   what               the object's name for messages
  /// Errors:  kUnsupported for an unknown component, kInvalid.
  static Result<Tokenizer> FromJson(const Json& tokenizer_json, const Json& tokenizer_config, std::string_view what);

  /// Reads tokenizer.json and, where there is one, tokenizer_config.json of a folder.
  /// Errors:  kNotFound, kIo, kCapacity and those of FromJson.
  static Result<Tokenizer> Open(const std::string& dir);

  /// The ids of `text`.  Errors: kInvalid when it is not UTF-8 or needs an unknown token that the vocabulary lacks,
  /// kCapacity when a regular expression exceeds its limits on it.
  Result<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// The text of `ids`, always UTF-8: bytes that are not become U+FFFD. Ids without a token are left out.
  ///   skip_special   leave special tokens out as well
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const;

  /// The piece of an id as the vocabulary writes it; empty for an id without a token.
  std::string TokenText(TokenId id) const;
  /// The bytes that one token stands for, which need not be whole characters; empty for an id without a token.
  std::string TokenBytes(TokenId id) const { return decoder_.Bytes(DecoderPiece(id)); }

  /// The tokens that Encode puts before a text on request.
  const std::vector<TokenId>& before() const { return post_processor_.before(); }

  /// Largest id + 1.
  int64_t vocab_size() const { return vocab_size_; }
  /// The id of an added token or piece, or nothing.
  std::optional<TokenId> IdOf(std::string_view content) const;
  /// Whether decoding may leave the id out.
  bool IsSpecial(TokenId id) const;

 private:
  friend class StreamingDetokenizer;

  struct Parts {
    Bpe model;
    Normalizer normalizer;
    AddedTokens added;
    PreTokenizer pre_tokenizer;
    PostProcessor post_processor;
    Decoder decoder;
  };
  explicit Tokenizer(Parts parts);
  // What the decoder takes for an id; empty for an id without a token.
  std::string_view DecoderPiece(TokenId id) const;
  Status EncodePlain(std::string text, bool at_start, Bpe::Scratch* scratch, std::vector<TokenId>* out) const;

  Bpe model_;
  Normalizer normalizer_;
  AddedTokens added_;
  PreTokenizer pre_tokenizer_;
  PostProcessor post_processor_;
  Decoder decoder_;
  int64_t vocab_size_;
};

}  // namespace trivet::text
