// SPDX-License-Identifier: Apache-2.0
// The filters of texts and numbers.
#include "text/jinja_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/html.h"
#include "base/str.h"
#include "text/jinja_access.h"
#include "text/jinja_format_spec.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace trivet::text::jinja {
namespace {

Value Like(const Value& self, std::string text) { return Value::String(std::move(text), self.IsMarkup()); }

template <std::string (*kFunction)(std::string_view), bool kKeepMarkup>
Result<Value> MapText(Runtime& runtime, const Value& self, const Arguments&) {
  TRY_ASSIGN(const std::string text, TextOf(runtime, self));
  return Value::String(kFunction(text), kKeepMarkup && self.IsMarkup());
}

Result<Value> Absolute(Runtime&, const Value& self, const Arguments& arguments) {
  if (!self.IsNumber()) return arguments.Expected("a number", self);
  return Signed(self, self.number() < 0 || (self.Is(Kind::kFloat) && std::signbit(self.number())));
}

Result<Value> Count(Runtime& runtime, const Value& self, const Arguments&) {
  TRY_ASSIGN(const int64_t length, Length(runtime, self));
  return Value::Int(length);
}

Result<Value> Default(Runtime&, const Value& self, const Arguments& arguments) {
  const bool missing = self.IsUndefined() || (arguments.Flag(1, false) && !Truth(self));
  if (!missing) return self;
  return arguments.Get(0) == nullptr ? Value::String("") : arguments.At(0);
}

Result<Value> Escape(Runtime& runtime, const Value& self, const Arguments&) {
  if (self.IsMarkup()) return self;
  TRY_ASSIGN(const std::string text, TextOf(runtime, self));
  return Value::String(EscapeHtml(text), true);
}

Result<Value> ForceEscape(Runtime& runtime, const Value& self, const Arguments&) {
  TRY_ASSIGN(const std::string text, TextOf(runtime, self));
  return Value::String(EscapeHtml(text), true);
}

Result<Value> Safe(Runtime& runtime, const Value& self, const Arguments&) {
  TRY_ASSIGN(std::string text, TextOf(runtime, self));
  return Value::String(std::move(text), true);
}

Result<Value> ToString(Runtime& runtime, const Value& self, const Arguments&) {
  if (self.Is(Kind::kString)) return self;
  TRY_ASSIGN(std::string text, TextOf(runtime, self));
  return Value::String(std::move(text));
}

Result<Value> TrimText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::string text, TextOf(runtime, self));
  std::optional<std::string> chars;
  if (arguments.Has(0)) {
    TRY_ASSIGN(chars, arguments.Text(0, ""));
  }
  return Like(self,
              std::string(Strip(text, {}, chars.has_value() ? std::optional<std::string_view>(*chars) : std::nullopt)));
}

Result<Value> ReplaceText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::string text, TextOf(runtime, self));
  TRY_ASSIGN(const std::string old, TextOf(runtime, arguments.At(0)));
  TRY_ASSIGN(const std::string with, TextOf(runtime, arguments.At(1)));
  int64_t count = -1;
  if (arguments.Has(2)) {
    TRY_ASSIGN(count, arguments.Int(2, -1));
  }
  std::optional<std::string> result = Replace(text, {old, with, count}, kMaxWeight);
  if (!result.has_value()) return Invalid("replace: expected a shorter result, found one that is too long; shorten it");
  return Value::String(std::move(*result));
}

// Every word starts with a capital; words begin after white space and ( { [ < -.
std::string TitleWords(std::string_view text) {
  std::string out;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (end == begin) return;
    const std::string_view word = text.substr(begin, end - begin);
    const size_t first = CodePointAt(word, 0).length;
    out += Upper(word.substr(0, first));
    out += Lower(word.substr(first));
  };
  bool in_word = true;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    const bool separates = IsSpace(point.value) ||
                           (point.value < 0x80 &&
                            std::string_view("-({[<").find(static_cast<char>(point.value)) != std::string_view::npos);
    if (separates == in_word) {
      flush(at);
      begin = at;
      in_word = !separates;
    }
    at += point.length;
  }
  flush(text.size());
  return out;
}

Result<Value> CenterText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const Value text, ToString(runtime, self, arguments));
  TRY_ASSIGN(const int64_t width, arguments.Int(0, 80));
  TRY_ASSIGN(std::optional<Value> method, FindAttribute(runtime, text, "center"));
  return CallValue(runtime, *method, {{Value::Int(width)}, {}});
}

Result<Value> Truncate(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const int64_t length, arguments.Int(0, 255));
  TRY_ASSIGN(const std::string end, arguments.Text(2, "..."));
  int64_t leeway = 5;
  if (arguments.Has(3)) {
    TRY_ASSIGN(leeway, arguments.Int(3, leeway));
  }
  const int64_t kept = length - CountCodePoints(end);
  if (kept < 0 || leeway < 0) return Invalid("truncate: expected a length of at least that of the end; raise it");
  TRY_ASSIGN(const int64_t found, Length(runtime, self));
  if (found <= leeway || found - leeway <= length) return self;
  if (!self.Is(Kind::kString)) return arguments.Expected("a string", self);
  std::string text = self.text().substr(0, ByteOffset(self.text(), kept));
  if (!arguments.Flag(1, false)) text = text.substr(0, std::min(text.rfind(' '), text.size()));
  return Like(self, text + (self.IsMarkup() ? EscapeHtml(end) : end));
}

Result<Value> WordCount(Runtime& runtime, const Value& self, const Arguments&) {
  TRY_ASSIGN(const std::string text, TextOf(runtime, self));
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    const bool is_word =
        IsWord(point.value) && !IsMark(point.value) &&
        (point.value == '_' || point.value < 0x80 || IsAll(text.substr(at, point.length), TextClass::kAlnum));
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    at += point.length;
  }
  return Value::Int(count);
}

Result<Value> Indent(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!self.Is(Kind::kString)) return arguments.Expected("a string", self);
  std::string indentation;
  if (arguments.Get(0) != nullptr && arguments.At(0).Is(Kind::kString)) {
    indentation = arguments.At(0).text();
  } else {
    TRY_ASSIGN(const int64_t width, arguments.Int(0, 4));
    if (width > kMaxWidth) return Invalid("indent: expected a smaller width, found one that is too large; lower it");
    indentation.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const std::string text = self.text() + "\n";
  const std::vector<std::string_view> lines = SplitLines(text, false);
  if (std::ssize(lines) > kMaxItems) return Invalid("indent: expected fewer lines, found too many; shorten the text");
  TRY(runtime.Charge(std::ssize(lines) * (1 + std::ssize(indentation) / 64)));
  const bool blank = arguments.Flag(2, false);
  std::string out = arguments.Flag(1, false) ? indentation : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indentation;
    out += lines[i];
    if (std::ssize(out) > kMaxWeight) break;  // the caller refuses it
  }
  return Like(self, std::move(out));
}

// `text` without its underscores, or nothing where one does not stand between two digits.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return out;
}

std::optional<double> ParseFloat(std::string_view text) {
  std::optional<std::string> digits = WithoutUnderscores(Strip(text));
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  std::string_view rest = *digits;
  const bool has_sign = rest[0] == '-' || rest[0] == '+';
  const bool negative = rest[0] == '-';
  if (has_sign) rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '-' || rest[0] == '+' || rest.find('(') != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    const size_t e = rest.find_first_of("eE");
    const bool tiny = e != std::string_view::npos ? rest[e + 1] == '-' : rest[0] == '0' || rest[0] == '.';
    value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return negative ? -value : value;
}

enum class Parsed { kYes, kNo, kTooLarge };

// Python's int(text, base).
Parsed ParseInteger(std::string_view text, int64_t base, int64_t* value) {
  text = Strip(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const char mark = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : ' ';
  const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == marked || base == 0)) {
    base = marked;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos) return Parsed::kNo;
    base = 10;
  }
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (base < 2 || base > 36 || !digits.has_value() || digits->empty() || (*digits)[0] == '-') return Parsed::kNo;
  const std::string signed_digits = (negative ? "-" : "") + *digits;
  const char* const stop = signed_digits.data() + signed_digits.size();
  const auto [end, error] = std::from_chars(signed_digits.data(), stop, *value, static_cast<int>(base));
  if (error == std::errc::invalid_argument || end != stop) return Parsed::kNo;
  return error == std::errc() ? Parsed::kYes : Parsed::kTooLarge;
}

Error TooLarge() { return Invalid("int: expected a number of at most 64 bits, found a larger one; shorten it"); }

Result<Value> ToInt(Runtime&, const Value& self, const Arguments& arguments) {
  const Value fallback = arguments.Get(0) == nullptr ? Value::Int(0) : arguments.At(0);
  if (self.IsUndefined()) return arguments.Expected("a defined value", self);
  if (self.IsIntegral()) return Value::Int(self.integer());
  double number = 0;
  if (self.Is(Kind::kString)) {
    TRY_ASSIGN(const int64_t base, arguments.Int(1, 10));
    int64_t value = 0;
    const Parsed parsed = ParseInteger(self.text(), base, &value);
    if (parsed == Parsed::kTooLarge) return TooLarge();
    if (parsed == Parsed::kYes) return Value::Int(value);
    const std::optional<double> parsed_float = ParseFloat(self.text());
    if (!parsed_float.has_value() || std::isinf(*parsed_float)) return fallback;
    number = *parsed_float;
  } else if (self.Is(Kind::kFloat)) {
    number = self.number();
  } else {
    return fallback;
  }
  if (std::isnan(number)) return fallback;
  if (!(std::abs(number) < 9.2e18)) return TooLarge();
  return Value::Int(static_cast<int64_t>(number));
}

Result<Value> ToFloat(Runtime&, const Value& self, const Arguments& arguments) {
  if (self.IsUndefined()) return arguments.Expected("a defined value", self);
  if (self.IsNumber()) return Value::Float(self.number());
  const std::optional<double> number = self.Is(Kind::kString) ? ParseFloat(self.text()) : std::nullopt;
  if (number.has_value()) return Value::Float(*number);
  return arguments.Get(0) == nullptr ? Value::Float(0) : arguments.At(0);
}

// An integer rounded half to even at a power of ten.
Result<Value> RoundInteger(int64_t value, int64_t precision) {
  if (precision >= 0) return Value::Int(value);
  if (precision < -18) return Value::Int(0);
  int64_t unit = 1;
  for (int64_t i = 0; i < -precision; ++i) unit *= 10;
  const int64_t remainder = value % unit, down = value - remainder;
  const int64_t half = unit / 2, size = remainder < 0 ? -remainder : remainder;
  if (size < half || (size == half && (down / unit) % 2 == 0)) return Value::Int(down);
  int64_t result = 0;
  if (__builtin_add_overflow(down, value < 0 ? -unit : unit, &result)) return TooLarge();
  return Value::Int(result);
}

double RoundFloat(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 323) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  const std::string text = fmt::format("{:.{}f}", value, precision);
  double rounded = value;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

Result<Value> Round(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const int64_t precision, arguments.Int(0, 0));
  TRY_ASSIGN(const std::string method, arguments.Text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return Invalid(fmt::format("round: expected common, ceil or floor, found \"{}\"; correct it", Quote(method)));
  }
  if (!self.IsNumber()) return arguments.Expected("a number", self);
  if (method == "common") {
    if (self.IsIntegral()) return RoundInteger(self.integer(), precision);
    if (!std::isfinite(self.number()) && arguments.Get(0) == nullptr)
      return arguments.Expected("a finite number", self);
    return Value::Float(RoundFloat(self.number(), precision));
  }
  TRY_ASSIGN(const Value factor, Arithmetic(runtime, Op::kPower, Value::Int(10), Value::Int(precision)));
  TRY_ASSIGN(const Value scaled, Arithmetic(runtime, Op::kMultiply, self, factor));
  if (!std::isfinite(scaled.number())) return arguments.Expected("a finite number", self);
  const double whole = method == "ceil" ? std::ceil(scaled.number()) : std::floor(scaled.number());
  return Arithmetic(runtime, Op::kDivide, scaled.IsIntegral() ? scaled : Value::Float(whole + 0.0), factor);
}

Result<Value> FormatFilter(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const Value pattern, ToString(runtime, self, arguments));
  const auto& [positional, keywords] = arguments.rest();
  if (!positional.empty() && !keywords.empty()) {
    return Invalid("format: expected values or named values, found both; leave one kind out");
  }
  if (keywords.empty()) {
    TRY_ASSIGN(const Value tuple, MakeTuple(positional));
    return Arithmetic(runtime, Op::kModulo, pattern, tuple);
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : keywords) entries.emplace_back(Value::String(name), value);
  TRY_ASSIGN(const Value dict, MakeDict(std::move(entries)));
  return Arithmetic(runtime, Op::kModulo, pattern, dict);
}

Result<Value> AttributeOf(Runtime& runtime, const Value& self, const Arguments& arguments) {
  TRY_ASSIGN(const std::string name, arguments.Text(0, ""));
  TRY_ASSIGN(std::optional<Value> attribute, FindAttribute(runtime, self, name));
  return attribute.has_value() ? std::move(*attribute) : Value::Undefined(fmt::format("\"{}\"", Quote(name)));
}

Result<Value> Json(Runtime& runtime, const Value& self, const Arguments& arguments) {
  JsonOptions options;
  options.ensure_ascii = arguments.Flag(0, false);
  options.sort_keys = arguments.Flag(3, false);
  if (arguments.Has(1)) {
    options.item_separator.assign(1, ',');
    if (arguments.At(1).Is(Kind::kString)) {
      options.indent = arguments.At(1).text();
    } else {
      TRY_ASSIGN(const int64_t width, arguments.Int(1, 0));
      if (width > 1000) return Invalid("tojson: expected an indent of at most 1000, found a larger one; lower it");
      options.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (arguments.Has(2)) {
    TRY_ASSIGN(const std::vector<Value> separators, Iterate(runtime, arguments.At(2)));
    if (separators.size() != 2 || !separators[0].Is(Kind::kString) || !separators[1].Is(Kind::kString)) {
      return arguments.Expected("two strings as separators", arguments.At(2));
    }
    options.item_separator = separators[0].text();
    options.key_separator = separators[1].text();
  }
  TRY(runtime.ChargeDeep(self));
  TRY_ASSIGN(std::string text, ToJson(self, options));
  return Value::String(std::move(text));
}

}  // namespace

const Native* FindPlainFilter(std::string_view name) {
  static constexpr Native kFilters[] = {
      {"tojson", "ensure_ascii? indent? separators? sort_keys?", Json},
      {"default", "default_value? boolean?", Default},
      {"d", "default_value? boolean?", Default},
      {"length", "", Count},
      {"count", "", Count},
      {"trim", "chars?", TrimText},
      {"string", "", ToString},
      {"upper", "", MapText<Upper, true>},
      {"lower", "", MapText<Lower, true>},
      {"capitalize", "", MapText<Capitalize, true>},
      {"title", "", MapText<TitleWords, false>},
      {"replace", "old new count?", ReplaceText},
      {"indent", "width? first? blank?", Indent},
      {"int", "default? base?", ToInt},
      {"float", "default?", ToFloat},
      {"round", "precision? method?", Round},
      {"abs", "", Absolute},
      {"safe", "", Safe},
      {"escape", "", Escape},
      {"e", "", Escape},
      {"forceescape", "", ForceEscape},
      {"format", "* **", FormatFilter},
      {"center", "width?", CenterText},
      {"truncate", "length? killwords? end? leeway?", Truncate},
      {"wordcount", "", WordCount},
      {"attr", "name", AttributeOf},
  };
  return FindNative(kFilters, name);
}

bool IsFilter(std::string_view name) { return FindPlainFilter(name) != nullptr || FindSequenceFilter(name) != nullptr; }

Result<Value> RunFilter(Runtime& runtime, std::string_view name, const Value& value, CallArguments arguments) {
  const Native* native = FindPlainFilter(name);
  if (native == nullptr) native = FindSequenceFilter(name);
  if (native == nullptr) {
    return Invalid(fmt::format("expected a filter that chat templates have, found \"{}\"; leave it out", Quote(name)));
  }
  return RunNative(runtime, *native, value, std::move(arguments));
}

}  // namespace trivet::text::jinja
