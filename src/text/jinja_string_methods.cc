// SPDX-License-Identifier: Apache-2.0
// The methods of strings.
#include <fmt/format.h>

#include <algorithm>

#include "base/html.h"
#include "text/jinja_format.h"
#include "text/jinja_format_spec.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace trivet::text::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

// A result of a method of `self`, which is markup when `self` is.
Value Like(const Value& self, std::string text) { return Value::String(std::move(text), self.IsMarkup()); }

// An argument that goes into the result of a method of `self`.
std::string Inserted(const Value& self, const Value& argument) {
  return self.IsMarkup() && !argument.IsMarkup() ? EscapeHtml(argument.text()) : argument.text();
}

template <std::string (*kFunction)(std::string_view)>
Result<Value> Map(Runtime&, const Value& self, const Arguments&) {
  return Like(self, kFunction(self.text()));
}

template <TextClass kClass>
Result<Value> Is(Runtime&, const Value& self, const Arguments&) {
  return Value::Bool(IsAll(self.text(), kClass));
}

template <bool kLeft, bool kRight>
Result<Value> StripSide(Runtime&, const Value& self, const Arguments& arguments) {
  if (!arguments.Has(0)) return Like(self, std::string(Strip(self.text(), {kLeft, kRight})));
  TRY_ASSIGN(const std::string chars, arguments.Text(0, ""));
  return Like(self, std::string(Strip(self.text(), {kLeft, kRight}, chars)));
}

template <bool kFromRight>
Result<Value> SplitText(Runtime&, const Value& self, const Arguments& arguments) {
  SplitOptions options;
  options.from_right = kFromRight;
  TRY_ASSIGN(options.max_splits, arguments.Int(1, -1));
  if (!arguments.Has(0)) return MakeStrings(SplitSpace(self.text(), options), self.IsMarkup());
  TRY_ASSIGN(const std::string separator, arguments.Text(0, ""));
  if (separator.empty()) return Invalid("split: expected a separator, found an empty one; leave it out");
  return MakeStrings(SplitOn(self.text(), separator, options), self.IsMarkup());
}

Result<Value> SplitLinesOf(Runtime&, const Value& self, const Arguments& arguments) {
  return MakeStrings(SplitLines(self.text(), arguments.Flag(0, false)), self.IsMarkup());
}

template <bool kFromRight>
Result<Value> Partition(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::string separator, arguments.Text(0, ""));
  if (separator.empty()) return Invalid("partition: expected a separator, found an empty one; give one");
  const std::string& text = self.text();
  const size_t at = kFromRight ? FindLast(text, separator) : Find(text, separator);
  if (at == kNone) {
    if (kFromRight) return MakeTuple({Like(self, ""), Like(self, ""), self});
    return MakeTuple({self, Like(self, ""), Like(self, "")});
  }
  return MakeTuple(
      {Like(self, text.substr(0, at)), Like(self, separator), Like(self, text.substr(at + separator.size()))});
}

// The part of a string that optional start and end arguments choose.
struct Window {
  int64_t start = 0;  // code points before it
  std::string text;
  bool valid = true;  // the start is not behind the end
};
Result<Window> WindowOf(const Value& self, const Arguments& arguments, size_t first) {
  const int64_t length = self.length();
  Window window;
  int64_t bounds[2] = {0, length};
  for (size_t i = 0; i < 2; ++i) {
    if (!arguments.Has(first + i)) continue;
    TRY_ASSIGN(int64_t bound, arguments.Int(first + i, 0));
    if (bound < 0) bound = std::max<int64_t>(bound + length, 0);
    bounds[i] = bound;
  }
  window.valid = bounds[0] <= std::min(bounds[1], length);
  if (!window.valid) return window;
  const size_t begin = ByteOffset(self.text(), bounds[0]), end = ByteOffset(self.text(), bounds[1]);
  window.start = bounds[0];
  window.text = self.text().substr(begin, end - begin);
  return window;
}

template <bool kLast, bool kRequired>
Result<Value> FindText(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::string needle, arguments.Text(0, ""));
  TRY_ASSIGN(const Window window, WindowOf(self, arguments, 1));
  const size_t at = !window.valid ? kNone : kLast ? FindLast(window.text, needle) : Find(window.text, needle);
  if (at != kNone) return Value::Int(window.start + CountCodePoints(std::string_view(window.text).substr(0, at)));
  if (kRequired) return Invalid("index: expected the text to contain its argument, found that it does not; use find");
  return Value::Int(-1);
}

Result<Value> CountText(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::string needle, arguments.Text(0, ""));
  TRY_ASSIGN(const Window window, WindowOf(self, arguments, 1));
  return Value::Int(window.valid ? CountOccurrences(window.text, needle) : 0);
}

template <bool kAtEnd>
Result<Value> HasAffix(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const Window window, WindowOf(self, arguments, 1));
  const auto matches = [&](const std::string& affix) {
    return window.valid && (kAtEnd ? window.text.ends_with(affix) : window.text.starts_with(affix));
  };
  const Value& argument = arguments.At(0);
  if (!argument.Is(Kind::kTuple)) {
    TRY_ASSIGN(const std::string affix, arguments.Text(0, ""));
    return Value::Bool(matches(affix));
  }
  for (const Value& affix : argument.items()) {
    if (!affix.Is(Kind::kString)) return arguments.Expected("strings", affix);
    if (matches(affix.text())) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool kAtEnd>
Result<Value> RemoveAffix(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::string affix, arguments.Text(0, ""));
  const std::string& text = self.text();
  if (!(kAtEnd ? text.ends_with(affix) : text.starts_with(affix))) return self;
  return Like(self, kAtEnd ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size()));
}

Result<Value> ReplaceText(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::string old, arguments.Text(0, ""));
  TRY(arguments.Text(1, "").ok() ? Status() : Status(arguments.Expected("a string", arguments.At(1))));
  TRY_ASSIGN(const int64_t count, arguments.Int(2, -1));
  const std::string with = Inserted(self, arguments.At(1));
  std::optional<std::string> text = Replace(self.text(), {old, with, count}, kMaxWeight);
  if (!text.has_value()) return Invalid("replace: expected a shorter result, found one that is too long; shorten it");
  return Like(self, std::move(*text));
}

Result<Value> JoinTexts(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::vector<Value> items, Iterate(runtime, arguments.At(0)));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += self.text();
    if (!self.IsMarkup() && !items[i].Is(Kind::kString)) return arguments.Expected("strings to join", items[i]);
    TRY_ASSIGN(const std::string piece, TextOf(runtime, items[i]));
    text += self.IsMarkup() && !items[i].IsMarkup() ? EscapeHtml(piece) : piece;
    if (std::ssize(text) > kMaxWeight) break;  // the caller refuses it
  }
  return Like(self, std::move(text));
}

enum class Side { kLeft, kRight, kCenter };

template <Side kSide>
Result<Value> Justify(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const int64_t width, arguments.Int(0, 0));
  std::string fill = " ";
  if (arguments.Get(1) != nullptr) {
    TRY_ASSIGN(fill, arguments.Text(1, ""));
    fill = Inserted(self, arguments.At(1));
  }
  if (CountCodePoints(fill) != 1) return Invalid("expected one character to fill with, found another text; correct it");
  if (width > kMaxWidth) return Invalid("expected a smaller width, found one that is too large; lower it");
  const int64_t missing = std::max<int64_t>(width - self.length(), 0);
  const int64_t centered = missing / 2 + (missing & width & 1);
  const int64_t left = kSide == Side::kRight ? missing : kSide == Side::kLeft ? 0 : centered;
  std::string text;
  for (int64_t i = 0; i < left; ++i) text += fill;
  text += self.text();
  for (int64_t i = left; i < missing; ++i) text += fill;
  return Like(self, std::move(text));
}

Result<Value> ZeroFill(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const int64_t width, arguments.Int(0, 0));
  if (width > kMaxWidth) return Invalid("zfill: expected a smaller width, found one that is too large; lower it");
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const auto missing = static_cast<size_t>(std::max<int64_t>(width - self.length(), 0));
  return Like(self, text.substr(0, sign) + std::string(missing, '0') + text.substr(sign));
}

Result<Value> ExpandTabs(Runtime&, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const int64_t size, arguments.Int(0, 8));
  if (size > 1000) return Invalid("expandtabs: expected a smaller tab size, found one that is too large; lower it");
  std::string out;
  int64_t column = 0;
  for (size_t at = 0; at < self.text().size();) {
    const CodePoint point = CodePointAt(self.text(), at);
    if (point.value == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out.append(self.text(), at, point.length);
      column = point.value == '\n' || point.value == '\r' ? 0 : column + 1;
    }
    if (std::ssize(out) > kMaxWeight) break;  // the caller refuses it
    at += point.length;
  }
  return Like(self, std::move(out));
}

Result<Value> FormatMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, self, arguments.rest());
}

}  // namespace

const Native* FindStringMethod(std::string_view name) {
  static constexpr Native kMethods[] = {
      {"strip", "/chars?", StripSide<true, true>},
      {"lstrip", "/chars?", StripSide<true, false>},
      {"rstrip", "/chars?", StripSide<false, true>},
      {"split", "sep? maxsplit?", SplitText<false>},
      {"rsplit", "sep? maxsplit?", SplitText<true>},
      {"splitlines", "keepends?", SplitLinesOf},
      {"startswith", "/prefix /start? /end?", HasAffix<false>},
      {"endswith", "/suffix /start? /end?", HasAffix<true>},
      {"replace", "/old /new /count?", ReplaceText},
      {"upper", "", Map<Upper>},
      {"lower", "", Map<Lower>},
      {"title", "", Map<Title>},
      {"capitalize", "", Map<Capitalize>},
      {"swapcase", "", Map<SwapCase>},
      {"casefold", "", Map<CaseFold>},
      {"find", "/sub /start? /end?", FindText<false, false>},
      {"rfind", "/sub /start? /end?", FindText<true, false>},
      {"index", "/sub /start? /end?", FindText<false, true>},
      {"rindex", "/sub /start? /end?", FindText<true, true>},
      {"count", "/sub /start? /end?", CountText},
      {"join", "/iterable", JoinTexts},
      {"format", "* **", FormatMethod},
      {"isalpha", "", Is<TextClass::kAlpha>},
      {"isdigit", "", Is<TextClass::kDigit>},
      {"isdecimal", "", Is<TextClass::kDecimal>},
      {"isalnum", "", Is<TextClass::kAlnum>},
      {"isspace", "", Is<TextClass::kSpace>},
      {"islower", "", Is<TextClass::kLower>},
      {"isupper", "", Is<TextClass::kUpper>},
      {"istitle", "", Is<TextClass::kTitle>},
      {"isascii", "", Is<TextClass::kAscii>},
      {"isprintable", "", Is<TextClass::kPrintable>},
      {"removeprefix", "/prefix", RemoveAffix<false>},
      {"removesuffix", "/suffix", RemoveAffix<true>},
      {"partition", "/sep", Partition<false>},
      {"rpartition", "/sep", Partition<true>},
      {"ljust", "/width /fillchar?", Justify<Side::kLeft>},
      {"rjust", "/width /fillchar?", Justify<Side::kRight>},
      {"center", "/width /fillchar?", Justify<Side::kCenter>},
      {"zfill", "/width", ZeroFill},
      {"expandtabs", "tabsize?", ExpandTabs},
  };
  return FindNative(kMethods, name);
}

}  // namespace trivet::text::jinja
