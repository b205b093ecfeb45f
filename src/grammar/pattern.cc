// SPDX-License-Identifier: Apache-2.0
#include "grammar/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/str.h"

namespace trivet::grammar {
namespace {

constexpr int kMaxGroups = 100;            // inside one another
constexpr int64_t kMaxRepeat = 1'000'000;  // of one quantifier

constexpr uint32_t kEnd = UINT32_MAX;  // after the last character

CharSet Digits() { return CharSet('0', '9'); }

CharSet Words() {
  CharSet set('0', '9');
  set.Add('a', 'z');
  set.Add('A', 'Z');
  set.Add('_', '_');
  return set;
}

// What every dialect takes for white space, and what some do.
CharSet Spaces(bool widest) {
  CharSet set('\t', '\r');
  set.Add(' ', ' ');
  if (!widest) return set;
  set.Add(0x1C, 0x1F);
  for (const uint32_t one : {0x85u, 0xA0u, 0x1680u, 0x202Fu, 0x205Fu, 0x3000u, 0xFEFFu}) set.Add(one, one);
  set.Add(0x2000, 0x200A);
  set.Add(0x2028, 0x2029);
  return set;
}

CharSet LineEnds() {
  CharSet set('\n', '\n');
  set.Add('\r', '\r');
  set.Add(0x2028, 0x2029);
  return set;
}

class PatternReader {
 public:
  PatternReader(std::string_view pattern, const PatternOptions& options, GrammarBuilder* builder, std::string_view what)
      : text_(pattern), pattern_(CharactersOf(pattern)), options_(options), builder_(*builder), what_(what) {}

  Result<NodeId> Read() {
    TRY_ASSIGN(const NodeId node, Alternatives(0));
    if (at_ < pattern_.size()) return Malformed("a closing parenthesis with its opening one");
    return node;
  }

 private:
  Error Malformed(std::string_view expected) const {
    return MakeError(Code::kInvalid, fmt::format("{}: expected {} in \"{}\", found otherwise at character {}; correct "
                                                 "the pattern",
                                                 what_, expected, Quote(text_), at_ + 1));
  }
  Error Unsupported(std::string_view found) const {
    return MakeError(Code::kUnsupported, fmt::format("{}: expected a pattern without {}, found one in \"{}\" at "
                                                     "character {}; write it otherwise",
                                                     what_, found, Quote(text_), at_ + 1));
  }

  uint32_t Peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : kEnd; }
  bool Take(uint32_t character) {
    if (Peek() != character) return false;
    ++at_;
    return true;
  }

  Result<NodeId> Alternatives(int depth) {
    if (depth > kMaxGroups) return Unsupported(fmt::format("more than {} groups inside one another", kMaxGroups));
    std::vector<NodeId> choices;
    do {
      TRY_ASSIGN(const NodeId terms, Terms(depth));
      choices.push_back(terms);
    } while (Take('|'));
    return builder_.Choice(std::move(choices));
  }

  // One alternative. A ^ or $ of the outermost level anchors it.
  Result<NodeId> Terms(int depth) {
    const bool outer = depth == 0;
    const bool free = outer && !options_.whole;
    std::vector<NodeId> terms;
    const NodeId anything = free ? builder_.Repeat(options_.character(CharSet::All()), 0, kNoLimit) : NodeId{0};
    if (!(outer && Take('^')) && free) terms.push_back(anything);
    bool anchored = false;
    while (Peek() != kEnd && Peek() != '|' && Peek() != ')') {
      if (outer && Peek() == '$' && (Peek(1) == kEnd || Peek(1) == '|')) {
        ++at_;
        anchored = true;
        break;
      }
      TRY_ASSIGN(const NodeId atom, Atom(depth));
      TRY_ASSIGN(const NodeId repeated, Quantified(atom));
      terms.push_back(repeated);
    }
    if (free && !anchored) terms.push_back(anything);
    return builder_.Sequence(std::move(terms));
  }

  Result<NodeId> Atom(int depth) {
    switch (Peek()) {
      case '(':
        return Group(depth);
      case '[':
        return Class();
      case '.':
        ++at_;
        return options_.character(LineEnds().Complement());
      case '^':
      case '$':
        return Unsupported("^ and $ other than at its ends");
      case '*':
      case '+':
      case '?':
        return Malformed("something to repeat");
      case '\\': {
        TRY_ASSIGN(const CharSet set, Escape());
        return options_.character(set);
      }
      default: {
        const uint32_t c = pattern_[at_++];
        return options_.character(CharSet(c, c));
      }
    }
  }

  Result<NodeId> Group(int depth) {
    ++at_;
    if (Take('?') && !Take(':')) {
      // (?<name>...) captures; everything else that begins so is no group.
      if (!Take('<') || Peek() == '=' || Peek() == '!') return Unsupported("look-around or flags");
      while (Peek() != '>' && Peek() != kEnd) ++at_;
      if (!Take('>')) return Malformed("the end of a group's name");
    }
    TRY_ASSIGN(const NodeId body, Alternatives(depth + 1));
    if (!Take(')')) return Malformed("a closing parenthesis");
    return body;
  }

  std::optional<int64_t> Number() {
    if (Peek() < '0' || Peek() > '9') return std::nullopt;
    int64_t value = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) value = std::min(value * 10 + Peek() - '0', kMaxRepeat + 1);
    return value;
  }

  // {m}, {m,} or {m,n}; nothing when the brace is a character.
  std::optional<std::pair<int64_t, int64_t>> Braces() {
    const size_t begin = at_++;
    const std::optional<int64_t> min = Number();
    std::optional<int64_t> max = min;
    if (min && Take(',')) max = Peek() == '}' ? kNoLimit : Number();
    if (min && max && Take('}')) return std::pair(*min, *max);
    at_ = begin;
    return std::nullopt;
  }

  Result<NodeId> Quantified(NodeId atom) {
    std::pair<int64_t, int64_t> times(1, 1);
    if (Take('*')) {
      times = {0, kNoLimit};
    } else if (Take('+')) {
      times = {1, kNoLimit};
    } else if (Take('?')) {
      times = {0, 1};
    } else if (const auto braces = Peek() == '{' ? Braces() : std::nullopt) {
      times = *braces;
      if (times.first > times.second) return Malformed("a smaller number before a larger one");
      if (times.first > kMaxRepeat || (times.second > kMaxRepeat && times.second != kNoLimit)) {
        return Unsupported(fmt::format("more than {} repetitions", kMaxRepeat));
      }
    } else {
      return atom;
    }
    if (Take('+')) return Unsupported("possessive quantifiers");
    Take('?');  // how eagerly it is matched makes no difference to what is
    return builder_.Repeat(atom, static_cast<int32_t>(times.first), static_cast<int32_t>(times.second));
  }

  // The characters of \x, \u and their like.
  Result<CharSet> Hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const uint32_t c = Peek();
      const uint32_t digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
      if (c == kEnd || digit > 15) return Malformed("hexadecimal digits");
      value = value * 16 + digit;
    }
    if (value >= 0xD800 && value <= 0xDFFF) return Unsupported("surrogates");
    return CharSet(value, value);
  }

  Result<CharSet> Escape() {
    ++at_;
    const uint32_t c = Peek();
    if (c == kEnd) return Malformed("a character after \\");
    ++at_;
    // Dialects differ in what is a digit, a letter or a space beyond ASCII: what they agree on is taken.
    const CharSet ascii(0, 0x7F);
    switch (c) {
      case 'd':
        return Digits();
      case 'D':
        return Digits().Complement().Intersection(ascii);
      case 'w':
        return Words();
      case 'W':
        return Words().Complement().Intersection(ascii);
      case 's':
        return Spaces(false);
      case 'S':
        return Spaces(true).Complement();
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      default:
        break;
    }
    constexpr std::string_view kNames = "tnrfv0", kMeant("\t\n\r\f\v\0", 6);
    if (c < 0x80) {
      if (const size_t found = kNames.find(static_cast<char>(c)); found != std::string_view::npos) {
        return CharSet(static_cast<uint8_t>(kMeant[found]), static_cast<uint8_t>(kMeant[found]));
      }
      if (Words().Contains(c) && c != '_') return Unsupported(fmt::format("\\{}", static_cast<char>(c)));
    }
    return CharSet(c, c);
  }

  // One character or set inside [...].
  Result<CharSet> ClassAtom() {
    if (Peek() == kEnd) return Malformed("a closing bracket");
    if (Peek() == '\\' && Peek(1) == 'b') return Unsupported("\\b");
    if (Peek() == '\\') return Escape();
    const uint32_t c = pattern_[at_++];
    return CharSet(c, c);
  }

  Result<NodeId> Class() {
    ++at_;
    const bool negated = Take('^');
    bool classes = false;  // \d and its like
    CharSet set;
    while (!Take(']')) {
      TRY_ASSIGN(const CharSet first, ClassAtom());
      const auto one = [](const CharSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
      };
      classes = classes || !one(first);
      set.Add(first);
      if (Peek() != '-' || Peek(1) == ']' || Peek(1) == kEnd) continue;
      ++at_;
      TRY_ASSIGN(const CharSet last, ClassAtom());
      if (!one(first) || !one(last) || first.ranges()[0].first > last.ranges()[0].first) {
        return Malformed("a range from a smaller character to a larger one");
      }
      set.Add(first.ranges()[0].first, last.ranges()[0].first);
    }
    if (negated) set = classes ? set.Complement().Intersection(CharSet(0, 0x7F)) : set.Complement();
    return options_.character(set);
  }

  const std::string_view text_;
  const std::vector<uint32_t> pattern_;
  const PatternOptions& options_;
  GrammarBuilder& builder_;
  const std::string_view what_;
  size_t at_ = 0;
};

}  // namespace

Result<NodeId> ReadPattern(std::string_view pattern, const PatternOptions& options, GrammarBuilder* builder,
                           std::string_view what) {
  if (!IsUtf8(pattern)) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected UTF-8, found \"{}\"; correct the pattern", what, Quote(pattern)));
  }
  return PatternReader(pattern, options, builder, what).Read();
}

}  // namespace trivet::grammar
