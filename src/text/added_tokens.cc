// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "text/component.h"
#include "text/unicode.h"

namespace trivet::text {
namespace {

Result<AddedToken> ReadToken(const Json& json, std::string_view what) {
  AddedToken token;
  TRY_ASSIGN(token.content, NeedString(json, "content", what));
  TRY_ASSIGN(token.single_word, GetBool(json, "single_word", false, what));
  TRY_ASSIGN(token.lstrip, GetBool(json, "lstrip", false, what));
  TRY_ASSIGN(token.rstrip, GetBool(json, "rstrip", false, what));
  TRY_ASSIGN(token.special, GetBool(json, "special", false, what));
  TRY_ASSIGN(token.normalized, GetBool(json, "normalized", !token.special, what));
  return token;
}

Status CheckId(int64_t id, std::string_view content, std::string_view what) {
  if (id >= 0 && id < kMaxVocabSize) return {};
  return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected an id from 0 to {}, found {}; correct the file",
                                               what, Quote(content), kMaxVocabSize - 1, id));
}

size_t SkipSpaceBefore(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    const CodePoint last = CodePointBefore(text, end);
    if (!IsWhiteSpace(last.value)) break;
    end -= last.length;
  }
  return end;
}

size_t SkipSpaceAfter(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const CodePoint first = CodePointAt(text, begin);
    if (!IsWhiteSpace(first.value)) break;
    begin += first.length;
  }
  return begin;
}

}  // namespace

void PrefixTree::Add(std::string_view key, int32_t value) {
  if (key.empty()) return;
  first_.set(static_cast<unsigned char>(key[0]));
  int32_t node = 0;
  for (const char c : key) {
    const uint64_t edge = static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(c);
    const auto [it, added] = children_.try_emplace(edge, static_cast<int32_t>(values_.size()));
    if (added) values_.push_back(-1);
    node = it->second;
  }
  if (values_[static_cast<size_t>(node)] < 0) values_[static_cast<size_t>(node)] = value;
}

std::optional<PrefixTree::Hit> PrefixTree::Longest(std::string_view text, size_t at) const {
  std::optional<Hit> longest;
  if (!first_.test(static_cast<unsigned char>(text[at]))) return longest;
  int32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto it = children_.find(static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(text[i]));
    if (it == children_.end()) break;
    node = it->second;
    const int32_t value = values_[static_cast<size_t>(node)];
    if (value >= 0) longest = Hit{value, i + 1 - at};
  }
  return longest;
}

Result<AddedTokens> AddedTokens::FromJson(const Source& source, std::string_view what) {
  const std::string name = std::string(what) + ": added_tokens";
  AddedTokens added;
  if (const Json* list = Find(source.tokenizer, "added_tokens"); list != nullptr && !list->is_null()) {
    if (!list->is_array()) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected an array, found {}; correct the file", name, list->type_name()));
    }
    for (const Json& json : *list) {
      TRY_ASSIGN(AddedToken token, ReadToken(json, name));
      TRY_ASSIGN(const int64_t id, NeedInt(json, "id", name));
      TRY(CheckId(id, token.content, name));
      token.id = static_cast<TokenId>(id);
      TRY(added.Add(std::move(token), source.model, name));
    }
  }
  TRY(added.AddFromConfig(source.tokenizer_config, source.model, name));
  // Of two tokens with one normalised content the reference library takes the special one, then the earlier.
  for (const bool special : {true, false}) {
    for (size_t i = 0; i < added.tokens_.size(); ++i) {
      AddedToken& token = added.tokens_[i];
      if (token.special != special) continue;
      token.piece = token.content;
      if (token.normalized) {
        TRY_ASSIGN(token.piece, source.normalizer.Apply(token.content));
      }
      (token.normalized ? added.normalized_ : added.raw_).Add(token.piece, static_cast<int32_t>(i));
    }
  }
  return added;
}

Status AddedTokens::AddFromConfig(const Json& config, const Bpe& model, std::string_view what) {
  const Json* decoder = Find(config, "added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) return {};
  std::vector<AddedToken> more;
  for (const auto& [key, json] : decoder->get_ref<const Json::object_t&>()) {
    TRY_ASSIGN(AddedToken token, ReadToken(json, what));
    if (by_content_.contains(token.content)) continue;
    TRY_ASSIGN(const int64_t id, ParseInt(key, what));
    TRY(CheckId(id, token.content, what));
    token.id = static_cast<TokenId>(id);
    more.push_back(std::move(token));
  }
  std::sort(more.begin(), more.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (AddedToken& token : more) TRY(Add(std::move(token), model, what));
  return {};
}

Status AddedTokens::Add(AddedToken token, const Bpe& model, std::string_view what) {
  if (token.content.empty()) return {};
  if (const auto it = by_content_.find(token.content); it != by_content_.end()) {
    if (tokens_[it->second] == token) return {};
    return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected one entry, found two that differ; correct the "
                                                 "file",
                                                 what, Quote(token.content)));
  }
  // The reference library ignores the ids of the file and numbers the tokens so; a file that disagrees would be read
  // differently by the two.
  const int64_t next = std::max(model.piece_count(), id_end_);
  const int64_t expected = model.Find(token.content).value_or(static_cast<TokenId>(next));
  if (token.id != expected) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: \"{}\": expected the id {}, its own in the vocabulary or the next "
                                 "free one, found {}; correct the file",
                                 what, Quote(token.content), expected, token.id));
  }
  if (token.single_word && !word_.has_value()) {
    TRY_ASSIGN(Regex word, Regex::Compile(fmt::format("[{}]", kWordMembers), what));
    word_ = std::move(word);
  }
  id_end_ = std::max(id_end_, int64_t{token.id} + 1);
  by_id_.insert_or_assign(token.id, tokens_.size());
  by_content_.emplace(token.content, tokens_.size());
  tokens_.push_back(std::move(token));
  return {};
}

bool AddedTokens::IsWordCharacter(std::string_view character) const {
  const Result<std::vector<Span>> spans = word_->Split(character);
  return spans.ok() && spans->size() == 1 && spans->front().match;
}

bool AddedTokens::IsInsideWord(std::string_view text, size_t begin, size_t end) const {
  if (begin > 0) {
    const size_t length = CodePointBefore(text, begin).length;
    if (IsWordCharacter(text.substr(begin - length, length))) return true;
  }
  return end < text.size() && IsWordCharacter(text.substr(end, CodePointAt(text, end).length));
}

std::vector<AddedTokens::Segment> AddedTokens::Split(std::string_view text, Pass pass, bool parse_special) const {
  const PrefixTree& tree = pass == Pass::kRaw ? raw_ : normalized_;
  std::vector<Segment> segments;
  size_t covered = 0;
  for (size_t at = 0; at < text.size();) {
    const std::optional<PrefixTree::Hit> hit = tree.Longest(text, at);
    if (!hit.has_value()) {
      ++at;
      continue;
    }
    // A match that is then rejected still hides shorter ones inside it, as in the reference library.
    size_t begin = at, end = at + hit->length;
    at = end;
    const AddedToken& token = tokens_[static_cast<size_t>(hit->value)];
    if (token.special && !parse_special) continue;
    if (token.single_word && IsInsideWord(text, begin, end)) continue;
    if (token.lstrip) begin = SkipSpaceBefore(text, begin, covered);
    if (token.rstrip) end = SkipSpaceAfter(text, end);
    if (covered < begin) segments.push_back({covered, begin, std::nullopt});
    segments.push_back({begin, end, token.id});
    covered = end;
  }
  if (covered != text.size()) segments.push_back({covered, text.size(), std::nullopt});
  return segments;
}

const AddedToken* AddedTokens::OfId(TokenId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

std::optional<TokenId> AddedTokens::IdOf(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  if (it == by_content_.end()) return std::nullopt;
  return tokens_[it->second].id;
}

}  // namespace trivet::text
