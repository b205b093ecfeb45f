// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "text/detokenizer.h"

namespace trivet::text {

Tokenizer::Tokenizer(Parts parts)
    : model_(std::move(parts.model)),
      normalizer_(std::move(parts.normalizer)),
      added_(std::move(parts.added)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      post_processor_(std::move(parts.post_processor)),
      decoder_(std::move(parts.decoder)),
      vocab_size_(std::max(model_.id_end(), added_.id_end())) {}

Result<Tokenizer> Tokenizer::FromJson(const Json& tokenizer_json, const Json& tokenizer_config, std::string_view what) {
  const Json null;
  const auto member = [&](std::string_view key) -> const Json& {
    const Json* found = Find(tokenizer_json, key);
    return found == nullptr ? null : *found;
  };
  TRY_ASSIGN(Bpe model, Bpe::FromJson(member("model"), what));
  TRY_ASSIGN(Normalizer normalizer, Normalizer::FromJson(member("normalizer"), what));
  TRY_ASSIGN(AddedTokens added, AddedTokens::FromJson({tokenizer_json, tokenizer_config, model, normalizer}, what));
  TRY_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::FromJson(member("pre_tokenizer"), what));
  const int64_t vocab_size = std::max(model.id_end(), added.id_end());
  TRY_ASSIGN(PostProcessor post_processor, PostProcessor::FromJson(member("post_processor"), vocab_size, what));
  TRY_ASSIGN(Decoder decoder, Decoder::FromJson(member("decoder"), what));
  return Tokenizer({std::move(model), std::move(normalizer), std::move(added), std::move(pre_tokenizer),
                    std::move(post_processor), std::move(decoder)});
}

Result<Tokenizer> Tokenizer::Open(const std::string& dir) {
  const std::string path = dir + "/tokenizer.json";
  TRY_ASSIGN(const Json tokenizer_json, ReadJsonFile(path));
  Result<Json> config = ReadJsonFile(dir + "/tokenizer_config.json");
  if (!config.ok() && config.error().code != Code::kNotFound) return config.error();
  return FromJson(tokenizer_json, config.ok() ? *config : Json(), path);
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  if (!IsUtf8(text)) {
    return MakeError(Code::kInvalid,
                     fmt::format("text of {} bytes: expected UTF-8, found other bytes; send it as UTF-8", text.size()));
  }
  std::vector<TokenId> ids;
  if (options.add_special_tokens) ids = post_processor_.before();
  Bpe::Scratch scratch;
  for (const AddedTokens::Segment& raw : added_.Split(text, AddedTokens::Pass::kRaw, options.parse_special)) {
    if (raw.token.has_value()) {
      ids.push_back(*raw.token);
      continue;
    }
    TRY_ASSIGN(const std::string normalized, normalizer_.Apply(text.substr(raw.begin, raw.end - raw.begin)));
    for (const AddedTokens::Segment& part :
         added_.Split(normalized, AddedTokens::Pass::kNormalized, options.parse_special)) {
      if (part.token.has_value()) {
        ids.push_back(*part.token);
        continue;
      }
      const bool at_start = raw.begin == 0 && part.begin == 0;
      TRY(EncodePlain(normalized.substr(part.begin, part.end - part.begin), at_start, &scratch, &ids));
    }
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), post_processor_.after().begin(), post_processor_.after().end());
  }
  return ids;
}

Status Tokenizer::EncodePlain(std::string text, bool at_start, Bpe::Scratch* scratch, std::vector<TokenId>* out) const {
  TRY_ASSIGN(const std::vector<std::string> words, pre_tokenizer_.Split(std::move(text), at_start));
  for (const std::string& word : words) TRY(model_.Encode(word, scratch, out));
  return {};
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  StreamingDetokenizer detokenizer(this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  text += detokenizer.Flush();
  return text;
}

std::string Tokenizer::TokenText(TokenId id) const {
  if (const AddedToken* token = added_.OfId(id); token != nullptr) return token->content;
  return std::string(model_.Piece(id));
}

std::string_view Tokenizer::DecoderPiece(TokenId id) const {
  if (const AddedToken* token = added_.OfId(id); token != nullptr) return token->piece;
  return model_.Piece(id);
}

std::optional<TokenId> Tokenizer::IdOf(std::string_view content) const {
  if (const std::optional<TokenId> id = added_.IdOf(content); id.has_value()) return id;
  return model_.Find(content);
}

bool Tokenizer::IsSpecial(TokenId id) const {
  const AddedToken* token = added_.OfId(id);
  return token != nullptr && token->special;
}

}  // namespace trivet::text
