// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers of tokenizer.json: how normalised text is cut into the words that the model then encodes one by one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"

namespace trivet::text {

/// How GPT-2 splits text into words; ByteLevel's own expression.
inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// What becomes of the matches and gaps of a splitting expression.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// A pre-tokenizer or a sequence of them; applying it is const and thread-safe. Move-only.
class PreTokenizer {
 public:
  /// Reads the "pre_tokenizer" member; null gives one that leaves a text as one word.
  ///   what     the object's name for messages
  /// Errors:  kUnsupported for an unknown type or expression, kInvalid when a member is malformed.
  static Result<PreTokenizer> FromJson(const Json& json, std::string_view what);

  /// The words of `text` in order, none empty.
  ///   text      valid UTF-8, normalised
  ///   at_start  whether it begins the whole input
  /// Errors:     those of Regex::Split.
  Result<std::vector<std::string>> Split(std::string text, bool at_start) const;

 private:
  // Every type of the file is one to three of these.
  enum class Kind { kSplit, kPrefix, kReplaceSpaces, kByteLevel };
  struct Step {
    Kind kind;
    std::optional<Regex> pattern;                       // kSplit
    SplitBehavior behavior = SplitBehavior::kIsolated;  // kSplit
    bool invert = false;                                // kSplit: matches and gaps change places
    std::string content;      // kPrefix: put before a piece that does not begin with it; kReplaceSpaces: instead of " "
    bool only_first = false;  // kPrefix: at the start of the whole input only
  };
  struct Piece {
    std::string text;
    bool at_start;
  };

  Status AddSteps(const Json& json, std::string_view type, std::string_view what);
  Status AddByteLevel(const Json& json, std::string_view what);
  Status AddMetaspace(const Json& json, std::string_view what);
  Status AddSplit(Result<Regex> pattern, SplitBehavior behavior, bool invert);
  static Status ApplyStep(const Step& step, Piece piece, std::vector<Piece>* out);

  std::vector<Step> steps_;
};

/// The pieces of a split text: `spans` joined as `behavior` says, with `match` set on those to drop.
std::vector<Span> JoinSpans(const std::vector<Span>& spans, SplitBehavior behavior);

}  // namespace trivet::text
