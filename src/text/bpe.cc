// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "text/unicode.h"

namespace trivet::text {
namespace {

constexpr TokenId kDead = -1;
constexpr int32_t kNone = -1;

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
  const bool looks_like_bpe = vocab != nullptr && vocab->is_object() && merges != nullptr && merges->is_array();
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
  TRY(bpe.ReadMerges(*merges, name));
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

const Bpe::Merge* Bpe::FindMerge(TokenId left, TokenId right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

Status Bpe::Encode(std::string_view word, Scratch* scratch, std::vector<TokenId>* out) const {
  if (ignore_merges_) {
    if (const std::optional<TokenId> whole = Find(word); whole.has_value()) {
      out->push_back(*whole);
      return {};
    }
  }
  scratch->symbols_.clear();
  TRY(AddSymbols(word, scratch));
  MergeSymbols(scratch);
  for (const Scratch::Symbol& symbol : scratch->symbols_) {
    if (symbol.id != kDead) out->push_back(symbol.id);
  }
  return {};
}

Status Bpe::AddSymbols(std::string_view word, Scratch* scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols_;
  TokenId unknown = kDead;  // an unknown token that later unknown characters may join
  const auto flush_unknown = [&] {
    if (unknown != kDead) symbols.push_back({unknown, kNone, kNone});
    unknown = kDead;
  };
  for (size_t at = 0, length = 0; at < word.size(); at += length) {
    length = CodePointAt(word, at).length;
    const std::string_view character = word.substr(at, length);
    if (const std::optional<TokenId> id = Find(character); id.has_value()) {
      flush_unknown();
      symbols.push_back({*id, kNone, kNone});
      continue;
    }
    // As in the reference library, bytes overtake an unknown token that is still open.
    if (byte_fallback_ && AddBytes(character, scratch)) continue;
    if (unk_token_.empty()) continue;
    const std::optional<TokenId> unk_id = Find(unk_token_);
    if (!unk_id.has_value()) {
      return MakeError(Code::kInvalid,
                       fmt::format("tokenizer model: expected the unk_token \"{}\" in vocab, found none "
                                   "when \"{}\" needed it; correct the file",
                                   Quote(unk_token_), Quote(character)));
    }
    if (!fuse_unk_) flush_unknown();
    unknown = *unk_id;
  }
  flush_unknown();
  return {};
}

bool Bpe::AddBytes(std::string_view character, Scratch* scratch) const {
  const auto id_of = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return id_of(c) == kDead; })) return false;
  for (const char c : character) scratch->symbols_.push_back({id_of(c), kNone, kNone});
  return true;
}

// Puts the merge of the symbol at `position` with its right neighbour on the heap, if there is one.
void Bpe::Consider(int32_t position, Scratch* scratch) const {
  const Scratch::Symbol& symbol = scratch->symbols_[static_cast<size_t>(position)];
  if (symbol.next == kNone) return;
  const Merge* merge = FindMerge(symbol.id, scratch->symbols_[static_cast<size_t>(symbol.next)].id);
  if (merge == nullptr) return;
  scratch->heap_.push_back({merge->rank, position, merge->product});
  std::push_heap(scratch->heap_.begin(), scratch->heap_.end(), Scratch::Later);
}

void Bpe::MergeSymbols(Scratch* scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch->symbols_;
  const auto count = static_cast<int32_t>(symbols.size());
  scratch->heap_.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : kNone;
  }
  for (int32_t i = 0; i < count; ++i) Consider(i, scratch);
  while (!scratch->heap_.empty()) {
    const Scratch::Candidate best = scratch->heap_.front();
    std::pop_heap(scratch->heap_.begin(), scratch->heap_.end(), Scratch::Later);
    scratch->heap_.pop_back();
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.id == kDead || left.next == kNone) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // An entry is stale when its pair changed since; what counts is that the pair still gives the same product.
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->product != best.product) continue;
    left.id = best.product;
    left.next = right.next;
    right.id = kDead;
    if (left.next != kNone) symbols[static_cast<size_t>(left.next)].previous = best.position;
    if (left.previous != kNone) Consider(left.previous, scratch);
    Consider(best.position, scratch);
  }
}

}  // namespace trivet::text
