// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/str.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace trivet::text::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr size_t kMaxName = 1000;

bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }

// Line ends become \n, and one at the end of the source goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) TRY(LexData());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest(size_t from) const { return std::string_view(source_).substr(from); }
  bool StartsWith(size_t at, std::string_view text) const { return Rest(at).starts_with(text); }

  // Moves to `to`, counting lines.
  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  size_t SkipSpace(size_t at) const {
    while (at < source_.size()) {
      const CodePoint point = CodePointAt(source_, at);
      if (!IsSpace(point.value)) break;
      at += point.length;
    }
    return at;
  }

  void Add(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  Error Fail(std::string_view what) const { return SyntaxError(line_, what); }

  // Start of the next tag at or after `from`, or npos.
  size_t FindTag(size_t from) const {
    for (size_t brace = source_.find('{', from); brace != kNone; brace = source_.find('{', brace + 1)) {
      if (brace + 1 < source_.size() &&
          (source_[brace + 1] == '{' || source_[brace + 1] == '%' || source_[brace + 1] == '#')) {
        return brace;
      }
    }
    return kNone;
  }

  // Text before a tag, without what the tag's white space control takes away.
  std::string_view TextBefore(size_t begin, size_t tag, bool is_print) const {
    std::string_view text = std::string_view(source_).substr(begin, tag - begin);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign == '-') return Strip(text, {false, true});
    if (sign == '+' || is_print) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == kNone ? 0 : newline + 1;
    if (newline == kNone && !line_starting_) return text;
    const bool blank = Strip(text.substr(line_start)).empty();
    return blank ? text.substr(0, line_start) : text;
  }

  // Copies text up to the next tag and reads that tag.
  Status LexData() {
    const size_t tag = FindTag(at_);
    if (tag == kNone) {
      Add(TokenKind::kData, std::string(Rest(at_)));
      Advance(source_.size());
      return {};
    }
    const char type = source_[tag + 1];
    const std::string_view text = TextBefore(at_, tag, type == '{');
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
    Advance(tag);
    Status status = type == '#' ? LexComment() : type == '{' ? LexPrint() : LexBlock();
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
    return status;
  }

  // Moves past the end of a comment or block whose closing brace pair starts at `close`.
  void Close(size_t close, size_t begin) {
    const char sign = close > begin ? source_[close - 1] : ' ';
    size_t after = close + 2;
    if (sign == '-') {
      after = SkipSpace(after);
    } else if (sign != '+' && after < source_.size() && source_[after] == '\n') {
      ++after;
    }
    Advance(after);
  }

  // Past the two characters that open a tag and the sign that may follow.
  size_t AfterTagBegin() const {
    const bool has_sign = at_ + 2 < source_.size() && (source_[at_ + 2] == '-' || source_[at_ + 2] == '+');
    return at_ + (has_sign ? 3 : 2);
  }

  Status LexComment() {
    const size_t begin = AfterTagBegin();
    if (begin == source_.size()) {  // the reference takes this for text that is empty
      Advance(begin);
      return {};
    }
    const size_t close = source_.find("#}", begin);
    if (close == kNone) return Fail("expected the end of a comment, found none; add #}");
    Close(close, begin);
    return {};
  }

  // If a block named `word` starts at `tag`, the position of its closing %} ("" is none); signs and spaces are skipped.
  size_t MatchWordBlock(size_t tag, std::string_view word) const {
    size_t at = tag + 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    at = SkipSpace(at);
    if (!StartsWith(at, word)) return kNone;
    at = SkipSpace(at + word.size());
    if (StartsWith(at, "%}")) return at;
    if ((StartsWith(at, "-%}") || (word == "endraw" && StartsWith(at, "+%}")))) return at + 1;
    return kNone;
  }

  Status LexBlock() {
    const size_t raw = MatchWordBlock(at_, "raw");
    if (raw != kNone) return LexRaw(raw);
    Add(TokenKind::kBlockBegin, "{%");
    Advance(AfterTagBegin());
    return LexCode("%}");
  }

  Status LexRaw(size_t close) {
    Advance(source_[close - 1] == '-' ? SkipSpace(close + 2) : close + 2);
    line_starting_ = source_[at_ - 1] == '\n';
    if (at_ == source_.size()) return {};  // as for comments
    for (size_t tag = source_.find("{%", at_); tag != kNone; tag = source_.find("{%", tag + 1)) {
      const size_t end = MatchWordBlock(tag, "endraw");
      if (end == kNone) continue;
      const std::string_view text = TextBefore(at_, tag, false);
      if (!text.empty()) Add(TokenKind::kData, std::string(text));
      Advance(tag);
      Close(end, tag + 2);
      return {};
    }
    return Fail("expected the end of a raw block, found none; add {% endraw %}");
  }

  Status LexPrint() {
    Add(TokenKind::kPrintBegin, "{{");
    Advance(AfterTagBegin());
    return LexCode("}}");
  }

  // Tokens up to the closing `end`, %} or }}.
  Status LexCode(std::string_view end) {
    std::string brackets;  // the closing ones that are awaited
    while (true) {
      Advance(SkipSpace(at_));
      if (at_ >= source_.size())
        return Fail(fmt::format("expected {}, found the end of the template; close the tag", end));
      if (brackets.empty() && LexEnd(end)) return {};
      TRY(LexToken(&brackets));
    }
  }

  bool LexEnd(std::string_view end) {
    const bool block = end == "%}";
    const char sign = source_[at_];
    const bool has_sign = sign == '-' || (block && sign == '+');
    const size_t close = has_sign ? at_ + 1 : at_;
    if (!StartsWith(close, end)) return false;
    Add(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, std::string(end));
    if (block) {
      Close(close, at_);
    } else {
      Advance(has_sign ? SkipSpace(close + 2) : close + 2);
    }
    return true;
  }

  Status LexToken(std::string* brackets) {
    const char c = source_[at_];
    if (IsDigitChar(c)) return LexNumber();
    if (c == '\'' || c == '"') return LexString(c);
    if (IsWord(CodePointAt(source_, at_).value)) {
      size_t end = at_;
      while (end < source_.size() && IsWord(CodePointAt(source_, end).value)) end += CodePointAt(source_, end).length;
      if (end - at_ > kMaxName)
        return Fail(fmt::format("expected names of at most {} bytes, found a longer one", kMaxName));
      Add(TokenKind::kName, source_.substr(at_, end - at_));
      Advance(end);
      return {};
    }
    return LexOperator(brackets);
  }

  Status LexOperator(std::string* brackets) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!StartsWith(at_, op)) continue;
      if (op == "(" || op == "[" || op == "{") brackets->push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      if (op == ")" || op == "]" || op == "}") {
        if (brackets->empty() || brackets->back() != op[0]) {
          return Fail(fmt::format("expected balanced brackets, found an unexpected {}; correct it", op));
        }
        brackets->pop_back();
      }
      Add(TokenKind::kOperator, std::string(op));
      Advance(at_ + op.size());
      return {};
    }
    return Fail(fmt::format("expected an expression, found the character \"{}\"; remove it",
                            Quote(Rest(at_).substr(0, CodePointAt(source_, at_).length))));
  }

  // End of a run of digits with single underscores between them.
  size_t DigitsEnd(size_t at) const {
    while (at < source_.size() &&
           (IsDigitChar(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                         IsDigitChar(source_[at + 1]) && IsDigitChar(source_[at - 1])))) {
      ++at;
    }
    return at;
  }

  Status LexNumber() {
    const size_t whole_end = DigitsEnd(at_);
    size_t end = whole_end;
    if (!(at_ > 0 && source_[at_ - 1] == '.')) {
      if (end + 1 < source_.size() && source_[end] == '.' && IsDigitChar(source_[end + 1])) end = DigitsEnd(end + 1);
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && IsDigitChar(source_[exponent])) end = DigitsEnd(exponent);
      }
    }
    return end == whole_end ? LexInteger(whole_end) : LexFloat(end);
  }

  Status LexFloat(size_t end) {
    std::string digits = source_.substr(at_, end - at_);
    std::erase(digits, '_');
    double value = 0;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc::result_out_of_range) {
      const bool tiny = digits.find("e-") != kNone || digits.find("E-") != kNone;
      value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    }
    Add(TokenKind::kFloat, std::move(digits));
    tokens_.back().number = value;
    Advance(end);
    return {};
  }

  Status LexInteger(size_t end) {
    int base = 10;
    size_t digits_begin = at_;
    const char mark = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : ' ';
    const int marked_base = source_[at_] != '0' ? 10 : mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (marked_base != 10) {
      const auto is_digit = [&](size_t i) {
        if (i >= source_.size()) return false;
        const char c = static_cast<char>(source_[i] | 0x20);
        const int digit = IsDigitChar(source_[i]) ? source_[i] - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        return digit < marked_base;
      };
      size_t i = at_ + 2;
      while (is_digit(i) || (i < source_.size() && source_[i] == '_' && is_digit(i + 1))) ++i;
      if (i > at_ + 2) {
        base = marked_base;
        digits_begin = at_ + 2;
        end = i;
      }
    } else if (source_[at_] == '0') {
      end = at_;  // zeros only: Python has no leading zeros
      while (end < source_.size() && (source_[end] == '0' || (source_[end] == '_' && StartsWith(end + 1, "0")))) ++end;
    }
    if (base == 10 && marked_base != 10) end = at_ + 1;
    std::string digits = source_.substr(digits_begin, end - digits_begin);
    std::erase(digits, '_');
    int64_t value = 0;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc()) return Fail(fmt::format("expected integers of at most 64 bits, found {}", Quote(digits)));
    Add(TokenKind::kInteger, std::move(digits));
    tokens_.back().integer = value;
    Advance(end);
    return {};
  }

  Status LexString(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Fail("expected the end of a string, found the end of the template; close it");
    std::string value;
    TRY(Unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), &value));
    Add(TokenKind::kString, std::move(value));
    Advance(end + 1);
    return {};
  }

  Status Unescape(std::string_view text, std::string* out) const {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        *out += text[i];
        continue;
      }
      TRY_ASSIGN(const size_t used, UnescapeOne(text.substr(i + 1), out));
      i += used;
    }
    return {};
  }

  // Appends what the escape after a backslash stands for; returns the bytes it takes.
  Result<size_t> UnescapeOne(std::string_view text, std::string* out) const {
    static constexpr std::string_view kPlain = "\\'\"abfnrtv";
    static constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    const char c = text[0];
    if (const size_t plain = kPlain.find(c); plain != kNone) {
      *out += kMeaning[plain];
      return size_t{1};
    }
    if (c == '\n') return size_t{1};
    if (c >= '0' && c <= '7') {
      size_t length = 1;
      while (length < 3 && length < text.size() && text[length] >= '0' && text[length] <= '7') ++length;
      return AppendCode(text.substr(0, length), 8, 0, out);
    }
    if (c == 'x') return AppendCode(text.substr(1, 2), 16, 2, out);
    if (c == 'u') return AppendCode(text.substr(1, 4), 16, 4, out);
    if (c == 'U') return AppendCode(text.substr(1, 8), 16, 8, out);
    if (c == 'N') return Fail("expected no \\N escape in a string, found one; write the character itself");
    *out += '\\';  // Python keeps the backslash of an escape that it does not know
    const CodePoint point = CodePointAt(text, 0);
    if (point.value < 0x80) return size_t{0};
    const auto number = static_cast<uint32_t>(point.value);  // and writes what is not ASCII as an escape before
    *out += number < 0x100     ? fmt::format("x{:02x}", number)
            : number < 0x10000 ? fmt::format("u{:04x}", number)
                               : fmt::format("U{:08x}", number);
    return point.length;
  }

  // `width` is the number of digits demanded after a letter; 0 means an octal escape, which has none.
  Result<size_t> AppendCode(std::string_view digits, int base, size_t width, std::string* out) const {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    const bool whole =
        error == std::errc() && end == digits.data() + digits.size() && (width == 0 || digits.size() == width);
    if (!whole || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      return Fail("expected an escape of a Unicode character in a string, found a malformed one; correct it");
    }
    AppendUtf8(static_cast<char32_t>(value), out);
    return digits.size() + (width == 0 ? 0 : 1);
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Lex(std::string_view source) {
  if (std::ssize(source) > kMaxSource) {
    return SyntaxError(1, fmt::format("expected at most {} bytes, found {}; shorten it", kMaxSource, source.size()));
  }
  if (!IsUtf8(source)) return SyntaxError(1, "expected valid UTF-8, found other bytes; correct it");
  return Lexer(NormalizeNewlines(source)).Run();
}

const Token& TokenStream::Peek(size_t ahead) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }

Token TokenStream::Next() {
  Token token = Peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::AtOperator(std::string_view op) const {
  return Peek().kind == TokenKind::kOperator && Peek().text == op;
}

bool TokenStream::AtName(std::string_view name, size_t ahead) const {
  return Peek(ahead).kind == TokenKind::kName && Peek(ahead).text == name;
}

bool TokenStream::SkipOperator(std::string_view op) {
  const bool found = AtOperator(op);
  if (found) Next();
  return found;
}

bool TokenStream::SkipName(std::string_view name) {
  const bool found = AtName(name);
  if (found) Next();
  return found;
}

Status TokenStream::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) return Unexpected(fmt::format("\"{}\"", op));
  return {};
}

Status TokenStream::Expect(TokenKind kind) {
  if (Peek().kind != kind) {
    return Unexpected(kind == TokenKind::kBlockEnd ? "%}" : kind == TokenKind::kPrintEnd ? "}}" : "a name");
  }
  Next();
  return {};
}

Result<std::string> TokenStream::ExpectName() {
  if (Peek().kind != TokenKind::kName) return Unexpected("a name");
  return Next().text;
}

Error TokenStream::Unexpected(std::string_view expected) const {
  const Token& token = Peek();
  const std::string found =
      token.kind == TokenKind::kEnd ? "the end of the template" : fmt::format("\"{}\"", Quote(token.text));
  return SyntaxError(token.line, fmt::format("expected {}, found {}; correct it", expected, found));
}

Error SyntaxError(int line, std::string_view what) {
  return MakeError(Code::kInvalid, fmt::format("chat template, line {}: {}", line, what));
}

}  // namespace trivet::text::jinja
