// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "base/str.h"
#include "text/component.h"
#include "text/unicode.h"

namespace trivet::text {
namespace {

constexpr std::string_view kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";

Result<SplitBehavior> GetBehavior(const Json& json, std::string_view what) {
  TRY_ASSIGN(const std::string name, GetString(json, "behavior", "Isolated", what));
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return MakeError(Code::kInvalid,
                   fmt::format("{}: \"behavior\": expected Isolated, Removed, MergedWithPrevious, MergedWithNext or "
                               "Contiguous, found \"{}\"; correct the file",
                               what, Quote(name)));
}

}  // namespace

std::vector<Span> JoinSpans(const std::vector<Span>& spans, SplitBehavior behavior) {
  std::vector<Span> joined;
  if (behavior == SplitBehavior::kRemoved) return spans;
  const auto keep = [&joined](const Span& span) { joined.push_back({span.begin, span.end, false}); };
  if (behavior == SplitBehavior::kMergedWithNext) {
    bool last_match = false;
    for (size_t i = spans.size(); i-- > 0;) {
      // Right to left: a match joins what follows it, unless that is itself a match that did.
      if (spans[i].match && !last_match && !joined.empty()) {
        joined.back().begin = spans[i].begin;
      } else {
        keep(spans[i]);
      }
      last_match = spans[i].match;
    }
    return {joined.rbegin(), joined.rend()};
  }
  bool last_match = false;
  for (const Span& span : spans) {
    const bool join = behavior == SplitBehavior::kContiguous           ? span.match == last_match
                      : behavior == SplitBehavior::kMergedWithPrevious ? span.match && !last_match
                                                                       : false;
    if (join && !joined.empty()) {
      joined.back().end = span.end;
    } else {
      keep(span);
    }
    last_match = span.match;
  }
  return joined;
}

Result<PreTokenizer> PreTokenizer::FromJson(const Json& json, std::string_view what) {
  const std::string name = std::string(what) + ": pre_tokenizer";
  TRY_ASSIGN(const std::vector<Component> components, ListComponents(json, "pretokenizers", name));
  PreTokenizer pre_tokenizer;
  for (const Component& component : components) {
    TRY(pre_tokenizer.AddSteps(*component.json, component.type, name));
  }
  return pre_tokenizer;
}

Status PreTokenizer::AddSteps(const Json& json, std::string_view type, std::string_view what) {
  if (type == "ByteLevel") return AddByteLevel(json, what);
  if (type == "Metaspace") return AddMetaspace(json, what);
  if (type == "Whitespace") {
    return AddSplit(Regex::Compile(fmt::format("[{0}]+|[^{0}\\s]+", kWordMembers), what), SplitBehavior::kRemoved,
                    true);
  }
  if (type == "WhitespaceSplit") return AddSplit(Regex::Compile("\\s", what), SplitBehavior::kRemoved, false);
  if (type == "Digits") {
    TRY_ASSIGN(const bool individual, GetBool(json, "individual_digits", false, what));
    return AddSplit(Regex::Compile("\\p{N}", what), individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                    false);
  }
  if (type == "Punctuation" || type == "Split") {
    TRY_ASSIGN(const SplitBehavior behavior, GetBehavior(json, what));
    TRY_ASSIGN(const bool invert, GetBool(json, "invert", false, what));
    return AddSplit(type == "Split" ? NeedPattern(json, what) : Regex::Compile(kPunctuation, what), behavior, invert);
  }
  return UnknownComponent(type, what);
}

Status PreTokenizer::AddSplit(Result<Regex> pattern, SplitBehavior behavior, bool invert) {
  if (!pattern.ok()) return pattern.error();
  steps_.push_back({Kind::kSplit, std::move(pattern).value(), behavior, invert, {}, false});
  return {};
}

Status PreTokenizer::AddByteLevel(const Json& json, std::string_view what) {
  TRY_ASSIGN(const bool prefix, GetBool(json, "add_prefix_space", true, what));
  TRY_ASSIGN(const bool split, GetBool(json, "use_regex", true, what));
  if (prefix) steps_.push_back({Kind::kPrefix, {}, {}, false, " ", false});
  if (split) TRY(AddSplit(Regex::Compile(kGpt2Words, what), SplitBehavior::kIsolated, false));
  steps_.push_back({Kind::kByteLevel, {}, {}, false, {}, false});
  return {};
}

Status PreTokenizer::AddMetaspace(const Json& json, std::string_view what) {
  TRY_ASSIGN(const char32_t replacement, GetCharacter(json, "replacement", U'\u2581', what));
  TRY_ASSIGN(const PrependScheme scheme, GetPrependScheme(json, what));
  TRY_ASSIGN(const bool split, GetBool(json, "split", true, what));
  std::string mark;
  AppendUtf8(replacement, &mark);
  steps_.push_back({Kind::kReplaceSpaces, {}, {}, false, mark, false});
  if (scheme != PrependScheme::kNever) {
    steps_.push_back({Kind::kPrefix, {}, {}, false, mark, scheme == PrependScheme::kFirst});
  }
  if (split) TRY(AddSplit(Regex::Literal(mark, what), SplitBehavior::kMergedWithNext, false));
  return {};
}

Status PreTokenizer::ApplyStep(const Step& step, Piece piece, std::vector<Piece>* out) {
  switch (step.kind) {
    case Kind::kSplit: {
      TRY_ASSIGN(std::vector<Span> spans, step.pattern->Split(piece.text));
      for (Span& span : spans) span.match = span.match != step.invert;
      for (const Span& span : JoinSpans(spans, step.behavior)) {
        if (span.match || span.begin == span.end) continue;
        out->push_back({piece.text.substr(span.begin, span.end - span.begin), piece.at_start && span.begin == 0});
      }
      return {};
    }
    case Kind::kPrefix:
      if (!piece.text.starts_with(step.content) && (piece.at_start || !step.only_first)) {
        piece.text.insert(0, step.content);
      }
      break;
    case Kind::kReplaceSpaces: {
      std::string replaced;
      for (const char c : piece.text) {
        if (c == ' ') {
          replaced += step.content;
        } else {
          replaced += c;
        }
      }
      piece.text = std::move(replaced);
      break;
    }
    case Kind::kByteLevel: {
      std::string mapped;
      AppendByteLevel(piece.text, &mapped);
      piece.text = std::move(mapped);
      break;
    }
  }
  out->push_back(std::move(piece));
  return {};
}

Result<std::vector<std::string>> PreTokenizer::Split(std::string text, bool at_start) const {
  std::vector<Piece> pieces;
  if (!text.empty()) pieces.push_back({std::move(text), at_start});
  for (const Step& step : steps_) {
    std::vector<Piece> next;
    next.reserve(pieces.size());
    for (Piece& piece : pieces) TRY(ApplyStep(step, std::move(piece), &next));
    pieces = std::move(next);
  }
  std::vector<std::string> words;
  words.reserve(pieces.size());
  for (Piece& piece : pieces) words.push_back(std::move(piece.text));
  return words;
}

}  // namespace trivet::text
