// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/str.h"
#include "text/unicode.h"

namespace trivet::text {
namespace {

constexpr TokenId kDead = -1;
constexpr TokenId kNoPiece = -2;
constexpr int32_t kNone = -1;
constexpr int32_t kNever = -1;

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

Error BadMerge(const Json& merge, std::string_view what) {
  return MakeError(Code::kInvalid, fmt::format("{}: merges: expected \"left right\" or [\"left\", \"right\"], found "
                                               "{}; correct the file",
                                               what, Quote(DumpJson(merge))));
}

}  // namespace

Result<Bpe> Bpe::FromJson(const Json& json, std::string_view what) {
  const std::string name = std::string(what) + ": model";
  const Json* vocab = trivet::Find(json, "vocab");
  const Json* merges = trivet::Find(json, "merges");
  const Json* scores = trivet::Find(json, "scores");
  const Json* order = scores != nullptr && merges == nullptr ? scores : merges;
  const bool looks_like_bpe = vocab != nullptr && vocab->is_object() && order != nullptr && order->is_array();
  TRY_ASSIGN(const std::string type, GetString(json, "type", looks_like_bpe ? "BPE" : "", name));
  if (type != "BPE") {
    return MakeError(Code::kUnsupported, fmt::format("{}: expected the type \"BPE\", found \"{}\"; this tokenizer "
                                                     "cannot be served",
                                                     name, Quote(type)));
  }
  if (!looks_like_bpe) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected an object \"vocab\" and an array \"merges\", found at most one; correct "
                                 "the file",
                                 name));
  }
  Bpe bpe;
  TRY(bpe.ReadOptions(json, name));
  TRY(bpe.ReadVocab(*vocab, name));
  TRY(order == merges ? bpe.ReadMerges(*merges, name) : bpe.ReadScores(*scores, name));
  return bpe;
}

Status Bpe::ReadOptions(const Json& json, std::string_view what) {
  TRY_ASSIGN(const double dropout, GetDouble(json, "dropout", 0, what));
  if (dropout != 0) {
    return MakeError(Code::kUnsupported,
                     fmt::format("{}: dropout: expected none, found {}; encoding would not repeat", what, dropout));
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    TRY_ASSIGN(const std::string affix, GetString(json, key, "", what));
    if (affix.empty()) continue;
    return MakeError(Code::kUnsupported, fmt::format("{}: \"{}\": expected none, found \"{}\"; this tokenizer cannot "
                                                     "be served",
                                                     what, key, Quote(affix)));
  }
  TRY_ASSIGN(unk_token_, GetString(json, "unk_token", "", what));
  TRY_ASSIGN(fuse_unk_, GetBool(json, "fuse_unk", false, what));
  TRY_ASSIGN(byte_fallback_, GetBool(json, "byte_fallback", false, what));
  TRY_ASSIGN(ignore_merges_, GetBool(json, "ignore_merges", false, what));
  return {};
}

Status Bpe::ReadVocab(const Json& vocab, std::string_view what) {
  const auto& entries = vocab.get_ref<const Json::object_t&>();
  int64_t end = 0;
  for (const auto& [piece, id] : entries) {
    const bool valid = id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(kMaxVocabSize);
    if (!valid) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: vocab: \"{}\": expected an id from 0 to {}, found {}; correct the file", what,
                                   Quote(piece), kMaxVocabSize - 1, Quote(DumpJson(id))));
    }
    end = std::max(end, id.get<int64_t>() + 1);
  }
  pieces_.resize(static_cast<size_t>(end));
  ids_.reserve(entries.size());
  for (const auto& [piece, json_id] : entries) {
    const auto id = json_id.get<TokenId>();
    std::string& place = pieces_[static_cast<size_t>(id)];
    if (!place.empty()) {
      return MakeError(Code::kInvalid, fmt::format("{}: vocab: expected distinct ids, found {} for \"{}\" and \"{}\"; "
                                                   "correct the file",
                                                   what, id, Quote(place), Quote(piece)));
    }
    place = piece;
    ids_.emplace(place, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[static_cast<size_t>(byte)] = Find(fmt::format("<0x{:02X}>", byte)).value_or(kDead);
  }
  return {};
}

Status Bpe::ReadMerges(const Json& merges, std::string_view what) {
  merges_.reserve(merges.size());
  int32_t rank = 0;
  for (const Json& merge : merges) {
    if (merge.is_string()) {
      const std::string_view pair = merge.get_ref<const std::string&>();
      if (pair.starts_with("#version")) continue;
      const size_t space = pair.find(' ');
      if (space == std::string_view::npos || pair.find(' ', space + 1) != std::string_view::npos) {
        return BadMerge(merge, what);
      }
      TRY(AddMerge(pair.substr(0, space), pair.substr(space + 1), rank++, what));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      TRY(AddMerge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), rank++, what));
    } else {
      return BadMerge(merge, what);
    }
  }
  return {};
}

Status Bpe::ReadScores(const Json& scores, std::string_view what) {
  by_score_ = true;
  if (static_cast<int64_t>(scores.size()) != id_end()) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: scores: expected {}, one for every id, found {}; correct the file", what,
                                 id_end(), scores.size()));
  }
  std::vector<double> sorted;
  for (size_t id = 0; id < scores.size(); ++id) {
    const Json& score = scores[id];
    if (score.is_null()) continue;
    if (!score.is_number() || !std::isfinite(score.get<double>())) {
      return MakeError(Code::kInvalid, fmt::format("{}: scores: \"{}\": expected a finite number, found {}; correct "
                                                   "the file",
                                                   what, Quote(pieces_[id]), Quote(DumpJson(score))));
    }
    sorted.push_back(score.get<double>());
  }
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  score_ranks_.assign(scores.size(), kNever);
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id].is_null()) continue;
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), scores[id].get<double>(), std::greater<>());
    score_ranks_[id] = static_cast<int32_t>(at - sorted.begin());
  }
  return {};
}

Status Bpe::AddMerge(std::string_view left, std::string_view right, int32_t rank, std::string_view what) {
  std::string product(left);
  product += right;
  const std::optional<TokenId> left_id = Find(left), right_id = Find(right), product_id = Find(product);
  if (!left_id.has_value() || !right_id.has_value() || !product_id.has_value()) {
    const std::string_view missing = !left_id.has_value() ? left : !right_id.has_value() ? right : product;
    return MakeError(Code::kInvalid, fmt::format("{}: merges: \"{}\" and \"{}\": expected parts and product in vocab, "
                                                 "found no \"{}\"; correct the file",
                                                 what, Quote(left), Quote(right), Quote(missing)));
  }
  // A repeated pair takes its last rank, as in the reference library.
  merges_[PairKey(*left_id, *right_id)] = {rank, *product_id};
  return {};
}

std::optional<TokenId> Bpe::Find(std::string_view piece) const {
  const auto it = ids_.find(piece);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

std::string_view Bpe::Piece(TokenId id) const {
  if (id < 0 || id >= id_end()) return {};
  return pieces_[static_cast<size_t>(id)];
}

std::optional<Bpe::Merge> Bpe::FindMerge(std::string_view word, const Scratch::Symbol& left,
                                         const Scratch::Symbol& right) const {
  if (by_score_) {
    const auto it = ids_.find(word.substr(left.begin, right.end - left.begin));
    if (it == ids_.end() || score_ranks_[static_cast<size_t>(it->second)] == kNever) return std::nullopt;
    return Merge{score_ranks_[static_cast<size_t>(it->second)], it->second};
  }
  const auto it = merges_.find(PairKey(left.id, right.id));
  if (it == merges_.end()) return std::nullopt;
  return it->second;
}

Status Bpe::Encode(std::string_view word, Scratch* scratch, std::vector<TokenId>* out) const {
  if (ignore_merges_) {
    if (const std::optional<TokenId> whole = Find(word); whole.has_value()) {
      out->push_back(*whole);
      return {};
    }
  }
  scratch->symbols_.clear();
  if (by_score_) return EncodeByScore(word, scratch, out);
  TRY(AddSymbols(word, scratch));
  MergeSymbols(word, scratch);
  for (const Scratch::Symbol& symbol : scratch->symbols_) {
    if (symbol.id != kDead) out->push_back(symbol.id);
  }
  return {};
}

// Texts of neighbours are merged, so a character that is no piece may still become part of one; only what is left over
// at the end is unknown.
Status Bpe::EncodeByScore(std::string_view word, Scratch* scratch, std::vector<TokenId>* out) const {
  for (size_t at = 0, length = 0; at < word.size(); at += length) {
    length = CodePointAt(word, at).length;
    TokenId id = Find(word.substr(at, length)).value_or(kNoPiece);
    if (id != kNoPiece && score_ranks_[static_cast<size_t>(id)] == kNever) id = kNoPiece;
    scratch->symbols_.push_back({id, kNone, kNone, static_cast<uint32_t>(at), static_cast<uint32_t>(at + length)});
  }
  MergeSymbols(word, scratch);
  bool open = false;  // the last token stands for an unknown character, and may take in the next
  for (const Scratch::Symbol& symbol : scratch->symbols_) {
    if (symbol.id == kDead) continue;
    const std::string_view text = word.substr(symbol.begin, symbol.end - symbol.begin);
    const bool bytes = symbol.id == kNoPiece && byte_fallback_ && HasBytes(text);
    const bool unknown = symbol.id == kNoPiece && !bytes;
    if (bytes) {
      for (const char byte : text) out->push_back(ByteId(byte));
    } else if (!unknown) {
      out->push_back(symbol.id);
    } else if (!unk_token_.empty() && !(open && fuse_unk_)) {
      TRY_ASSIGN(const TokenId id, UnknownFor(text));
      out->push_back(id);
    }
    open = unknown;
  }
  return {};
}

Result<TokenId> Bpe::UnknownFor(std::string_view character) const {
  const std::optional<TokenId> id = Find(unk_token_);
  if (id.has_value()) return *id;
  return MakeError(Code::kInvalid, fmt::format("tokenizer model: expected the unk_token \"{}\" in vocab, found none "
                                               "when \"{}\" needed it; correct the model's file",
                                               Quote(unk_token_), Quote(character)));
}

Status Bpe::AddSymbols(std::string_view word, Scratch* scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols_;
  const auto add = [&symbols](TokenId id) { symbols.push_back({id, kNone, kNone, 0, 0}); };
  TokenId unknown = kDead;  // an unknown token that later unknown characters may join
  const auto flush_unknown = [&] {
    if (unknown != kDead) add(unknown);
    unknown = kDead;
  };
  for (size_t at = 0, length = 0; at < word.size(); at += length) {
    length = CodePointAt(word, at).length;
    const std::string_view character = word.substr(at, length);
    if (const std::optional<TokenId> id = Find(character); id.has_value()) {
      flush_unknown();
      add(*id);
      continue;
    }
    // As in the reference library, bytes overtake an unknown token that is still open.
    if (byte_fallback_ && HasBytes(character)) {
      for (const char byte : character) add(ByteId(byte));
      continue;
    }
    if (unk_token_.empty()) continue;
    TRY_ASSIGN(const TokenId unk_id, UnknownFor(character));
    if (!fuse_unk_) flush_unknown();
    unknown = unk_id;
  }
  flush_unknown();
  return {};
}

bool Bpe::HasBytes(std::string_view character) const {
  return std::all_of(character.begin(), character.end(), [this](char byte) { return ByteId(byte) != kDead; });
}

// Puts the merge of the symbol at `position` with its right neighbour on the heap, if there is one.
void Bpe::Consider(std::string_view word, int32_t position, Scratch* scratch) const {
  const Scratch::Symbol& symbol = scratch->symbols_[static_cast<size_t>(position)];
  if (symbol.next == kNone) return;
  const std::optional<Merge> merge = FindMerge(word, symbol, scratch->symbols_[static_cast<size_t>(symbol.next)]);
  if (!merge.has_value()) return;
  scratch->heap_.push_back({merge->rank, position, merge->product});
  std::push_heap(scratch->heap_.begin(), scratch->heap_.end(), Scratch::Later);
}

void Bpe::MergeSymbols(std::string_view word, Scratch* scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols_;
  const auto count = static_cast<int32_t>(symbols.size());
  scratch->heap_.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : kNone;
  }
  for (int32_t i = 0; i < count; ++i) Consider(word, i, scratch);
  while (!scratch->heap_.empty()) {
    const Scratch::Candidate best = scratch->heap_.front();
    std::pop_heap(scratch->heap_.begin(), scratch->heap_.end(), Scratch::Later);
    scratch->heap_.pop_back();
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.id == kDead || left.next == kNone) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // An entry is stale when its pair changed since; what counts is that the pair still gives the same product.
    const std::optional<Merge> merge = FindMerge(word, left, right);
    if (!merge.has_value() || merge->product != best.product) continue;
    left.id = best.product;
    left.end = right.end;
    left.next = right.next;
    right.id = kDead;
    if (left.next != kNone) symbols[static_cast<size_t>(left.next)].previous = best.position;
    if (left.previous != kNone) Consider(word, left.previous, scratch);
    Consider(word, best.position, scratch);
  }
}

}  // namespace trivet::text
