// SPDX-License-Identifier: Apache-2.0
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/str.h"
#include "text/unicode.h"

namespace trivet::text {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;  // steps of one search
constexpr uint32_t kHeapLimitKib = 64 << 10;  // memory of one search

// Oniguruma's \s is White_Space, where PCRE2's has U+180E as well. Its \w knows marks and connectors, PCRE2's does not;
// and outside of character classes it also takes the superscript digits and fractions of Latin-1.
constexpr std::string_view kClassWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsAsciiDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

bool IsProperty(std::string_view name) {
  static constexpr std::string_view kProperties[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn",        "Mc", "Me",
                                                     "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",        "Pe", "Pi",
                                                     "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",         "Zs", "Zl",
                                                     "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs", "Alphabetic"};
  return std::find(std::begin(kProperties), std::end(kProperties), name) != std::end(kProperties);
}

// Rewrites one expression, left to right and without recursion.
class Translator {
 public:
  Translator(std::string_view pattern, std::string_view what) : in_(pattern), what_(what) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      switch (in_[at_]) {
        case '\\':
          TRY(Escape(false));
          break;
        case '[':
          TRY(Class());
          break;
        case '(':
          TRY(Group());
          break;
        case '{':
          TRY(Interval());
          break;
        default:
          out_ += in_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  char Peek(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool Follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void Copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }
  Error Refuse(std::string_view construct) const {
    return MakeError(Code::kUnsupported,
                     fmt::format("{}: regular expression \"{}\": expected the subset that tokenizers use, found {} at "
                                 "byte {}; this tokenizer cannot be served",
                                 what_, Quote(in_), construct, at_));
  }

  // Replaces the two bytes of an escape.
  Status Emit(std::string_view text) {
    out_ += text;
    at_ += 2;
    return {};
  }

  Status Escape(bool in_class) {
    if (at_ + 1 >= in_.size()) return Refuse("a final backslash");
    const char c = in_[at_ + 1];
    if (!IsAsciiLetter(c) && !IsAsciiDigit(c)) {
      if (static_cast<unsigned char>(c) >= 0x80) ++at_;  // an escaped character outside ASCII is itself
      Copy(static_cast<unsigned char>(c) >= 0x80 ? 1 : 2);
      return {};
    }
    switch (c) {
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        Copy(2);
        return {};
      case 'v':
        return Emit("\\x0b");
      case 's':
        return Emit("\\p{White_Space}");
      case 'S':
        return Emit("\\P{White_Space}");
      case 'd':
        return Emit("\\p{Nd}");
      case 'D':
        return Emit("\\P{Nd}");
      case 'h':
        return Emit(in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]");
      case 'p':
      case 'P':
        return Property();
      case 'x':
      case 'u':
        return Numbered();
      case 'w':
        return Emit(in_class ? std::string(kClassWord) : fmt::format("[{}]", kWord));
      default:
        break;
    }
    if (in_class) return Refuse(fmt::format("\\{} in a character class", c));
    switch (c) {
      case 'W':
        return Emit(fmt::format("[^{}]", kWord));
      case 'H':
        return Emit("[^0-9A-Fa-f]");
      case 'b':
        return Emit(fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord));
      case 'A':
      case 'z':
      case 'Z':
        Copy(2);
        return {};
      default:
        return Refuse(fmt::format("\\{}", c));
    }
  }

  // \p{..}: general categories have names of up to two letters; a longer name is a script.
  Status Property() {
    const size_t end = in_.find('}', at_);
    if (Peek(2) != '{' || end == std::string_view::npos) return Refuse("a property without braces");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const bool plain =
        !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return IsAsciiLetter(c) || c == '_'; });
    if (!plain) return Refuse("a property name with other characters than letters");
    out_ += fmt::format("\\{}{{{}{}{}}}", in_[at_ + 1], negated ? "^" : "", IsProperty(name) ? "" : "sc:", name);
    at_ = end + 1;
    return {};
  }

  // \xHH (ASCII only: above that it is a raw byte), \x{H..} and \uHHHH.
  Status Numbered() {
    const bool braces = Peek(2) == '{' && in_[at_ + 1] == 'x';
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t most = braces ? 6 : in_[at_ + 1] == 'u' ? 4 : 2;
    size_t end = begin;
    while (end < in_.size() && end - begin < most && IsHexDigit(in_[end])) ++end;
    const std::string_view digits = in_.substr(begin, end - begin);
    const bool complete = braces ? end < in_.size() && in_[end] == '}' && !digits.empty() : digits.size() == most;
    if (!complete || (most == 2 && digits[0] > '7')) return Refuse("a malformed character number");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ = end + (braces ? 1 : 0);
    return {};
  }

  Status Class() {
    Copy(Peek(1) == '^' ? 2 : 1);
    if (Peek(0) == ']') return Refuse("an empty character class");
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == ']') {
        Copy(1);
        return {};
      }
      if (c == '[') return Refuse("a character class inside another");
      if (Follows("&&")) return Refuse("an intersection of character classes");
      if (c == '\\') {
        TRY(Escape(true));
      } else {
        Copy(1);
      }
    }
    return Refuse("an unclosed character class");
  }

  Status Group() {
    if (Peek(1) != '?') {
      if (Peek(1) == '*') return Refuse("(*");
      Copy(1);
      return {};
    }
    // An option group in the middle of an alternative reaches further in one dialect than in the other.
    if (Follows("(?i)") && at_ != 0) return Refuse("(?i) after the start");
    for (const std::string_view open : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:", "(?i)"}) {
      if (Follows(open)) {
        Copy(open.size());
        return {};
      }
    }
    return Refuse("a group of an unknown kind");
  }

  Status Interval() {
    const auto digits_end = [this](size_t from) {
      while (from < in_.size() && IsAsciiDigit(in_[from])) ++from;
      return from;
    };
    const size_t low_end = digits_end(at_ + 1);
    const bool comma = low_end < in_.size() && in_[low_end] == ',';
    const size_t end = comma ? digits_end(low_end + 1) : low_end;
    const bool empty = end - at_ <= (comma ? 2U : 1U);
    if (empty || end >= in_.size() || in_[end] != '}') {
      out_ += "\\{";
      ++at_;
      return {};
    }
    const char next = end + 1 < in_.size() ? in_[end + 1] : '\0';
    if (next == '+') return Refuse("+ after an interval");
    if (next == '?' && !comma) return Refuse("? after a fixed interval");
    out_ += '{';
    if (low_end == at_ + 1) out_ += '0';
    out_ += in_.substr(at_ + 1, end - at_);
    at_ = end + 1;
    return {};
  }

  const std::string_view in_;
  const std::string_view what_;
  size_t at_ = 0;
  std::string out_;
};

struct CompileContextFree {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataFree>;

std::string Pcre2Message(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return fmt::format("error {}", code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }

  /// The first match at or after byte `from`, as offsets in `data`: whether there is one.
  Result<bool> Search(std::string_view text, size_t from, pcre2_match_data* data) const {
    const auto run = [&](uint32_t options) {
      return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options, data, context);
    };
    int found = run(PCRE2_NO_UTF_CHECK);
    // Compiled code works on a small fixed stack; the interpreter takes heap up to its limit.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found >= 0) return true;
    return MakeError(trivet::Code::kCapacity,
                     fmt::format("tokenizer regular expression on a text of {} bytes: expected to match within the "
                                 "limits, found: {}; send the text in smaller parts",
                                 text.size(), Pcre2Message(found)));
  }

  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  uint32_t matches_empty = 0;  // 1 when a match may have no length
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&& other) noexcept = default;
Regex& Regex::operator=(Regex&& other) noexcept = default;
Regex::~Regex() = default;

Result<std::string> Regex::Translate(std::string_view pattern, std::string_view what) {
  return Translator(pattern, what).Run();
}

Result<Regex> Regex::Compile(std::string_view pattern, std::string_view what) {
  TRY_ASSIGN(const std::string translated, Translate(pattern, what));
  return CompileWith(translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, pattern, what);
}

Result<Regex> Regex::Literal(std::string_view text, std::string_view what) {
  if (text.empty()) {
    return MakeError(trivet::Code::kInvalid,
                     fmt::format("{}: expected a pattern, found an empty text; correct the file", what));
  }
  return CompileWith(text, PCRE2_UTF | PCRE2_LITERAL, text, what);
}

Result<Regex> Regex::CompileWith(std::string_view pattern, uint32_t options, std::string_view shown,
                                 std::string_view what) {
  const std::unique_ptr<pcre2_compile_context, CompileContextFree> settings(pcre2_compile_context_create(nullptr));
  CHECK(settings != nullptr);
  pcre2_set_newline(settings.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset,
                             settings.get());
  if (code->code == nullptr) {
    const bool unknown = error == PCRE2_ERROR_UNKNOWN_UNICODE_PROPERTY;
    return MakeError(unknown ? trivet::Code::kUnsupported : trivet::Code::kInvalid,
                     fmt::format("{}: expected a regular expression, found \"{}\": {}; correct the file", what,
                                 Quote(shown), Pcre2Message(error)));
  }
  // Without the compiler (a platform that lacks it) matching is slower and the same.
  (void)pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  CHECK(pcre2_pattern_info(code->code, PCRE2_INFO_MATCHEMPTY, &code->matches_empty) == 0);
  code->context = pcre2_match_context_create(nullptr);
  CHECK(code->context != nullptr);
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  return Regex(std::move(code));
}

Result<std::vector<Span>> Regex::Split(std::string_view text) const {
  std::vector<Span> spans;
  if (text.empty()) return spans;
  const MatchData data(pcre2_match_data_create_from_pattern(code_->code, nullptr));
  CHECK(data != nullptr);
  size_t covered = 0;  // end of the last match
  std::optional<size_t> last_end;
  const size_t last_start = code_->matches_empty != 0 ? text.size() : text.size() - 1;
  for (size_t from = 0; from <= last_start;) {
    TRY_ASSIGN(const bool found, code_->Search(text, from, data.get()));
    if (!found) break;
    const size_t* bounds = pcre2_get_ovector_pointer(data.get());
    const size_t begin = bounds[0], end = bounds[1];
    if (begin == end && last_end == end) {  // an empty match right after a match is none
      from += from < text.size() ? CodePointAt(text, from).length : 1;
      continue;
    }
    if (covered != begin) spans.push_back({covered, begin, false});
    spans.push_back({begin, end, true});
    covered = from = end;
    last_end = end;
  }
  if (covered != text.size()) spans.push_back({covered, text.size(), false});
  return spans;
}

}  // namespace trivet::text
