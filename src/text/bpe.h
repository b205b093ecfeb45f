// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: characters to symbols, then merges in the order of a list or of the pieces' scores,
// in O(n log n) for a word of n characters.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"

namespace trivet::text {

/// One more than the largest vocabulary id that is accepted; tables are sized by the largest id of a file.
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 21;

/// A BPE model: a vocabulary, and merges or scores. Const and thread-safe once loaded. Move-only.
class Bpe {
 public:
  /// Reads the "model" member; one without "type" is taken for BPE when it has a vocabulary and merges. "scores" in
  /// place of "merges" is SentencePiece's form: a number per id, and of two neighbours whose texts together are a piece
  /// the pair with the highest score is merged first; null marks a piece that text never becomes.
  ///   what     the object's name for messages
  /// Errors:  kUnsupported for another model type, dropout, or prefixes and suffixes of words; kInvalid.
  static Result<Bpe> FromJson(const Json& json, std::string_view what);

  Bpe(Bpe&&) noexcept = default;
  Bpe& operator=(Bpe&&) noexcept = default;
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;
  ~Bpe() = default;

  /// Memory that Encode reuses from word to word; one per thread.
  class Scratch {
   private:
    friend class Bpe;
    struct Symbol {
      TokenId id;  // kDead once merged into its left neighbour, kNoPiece while its text is no piece (scores only)
      int32_t previous;
      int32_t next;
      uint32_t begin;  // its text within the word
      uint32_t end;
    };
    struct Candidate {
      int32_t rank;
      int32_t position;
      TokenId product;
    };
    static bool Later(const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
    }

    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;  // lowest rank first, then leftmost
  };

  /// Appends the ids of `word`, valid UTF-8.  Errors: kInvalid when the word needs an unknown token that the vocabulary
  /// lacks.
  Status Encode(std::string_view word, Scratch* scratch, std::vector<TokenId>* out) const;

  /// The id of a piece, or nothing.
  std::optional<TokenId> Find(std::string_view piece) const;
  /// The piece of an id; empty for an id without one.
  std::string_view Piece(TokenId id) const;
  /// Largest id + 1.
  int64_t id_end() const { return static_cast<int64_t>(pieces_.size()); }
  /// How many pieces there are; less than id_end() when ids have gaps.
  int64_t piece_count() const { return static_cast<int64_t>(ids_.size()); }

 private:
  struct Merge {
    int32_t rank;
    TokenId product;
  };

  Bpe() = default;
  Status ReadOptions(const Json& json, std::string_view what);
  Status ReadVocab(const Json& vocab, std::string_view what);
  Status ReadMerges(const Json& merges, std::string_view what);
  Status ReadScores(const Json& scores, std::string_view what);
  Status AddMerge(std::string_view left, std::string_view right, int32_t rank, std::string_view what);
  Status AddSymbols(std::string_view word, Scratch* scratch) const;
  Status EncodeByScore(std::string_view word, Scratch* scratch, std::vector<TokenId>* out) const;
  Result<TokenId> UnknownFor(std::string_view character) const;
  bool HasBytes(std::string_view character) const;
  TokenId ByteId(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)]; }
  void MergeSymbols(std::string_view word, Scratch* scratch) const;
  void Consider(std::string_view word, int32_t position, Scratch* scratch) const;
  std::optional<Merge> FindMerge(std::string_view word, const Scratch::Symbol& left,
                                 const Scratch::Symbol& right) const;

  std::vector<std::string> pieces_;                    // by id
  std::unordered_map<std::string_view, TokenId> ids_;  // keys point into pieces_
  std::unordered_map<uint64_t, Merge> merges_;         // by left id << 32 | right id
  std::vector<int32_t> score_ranks_;                   // by id, 0 the highest score; kNever where it is null
  bool by_score_ = false;                              // score_ranks_ decide merges, not merges_
  std::array<TokenId, 256> byte_ids_{};                // of "<0xNN>"; -1 where there is none
  std::string unk_token_;                              // empty when the model has none
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace trivet::text
