// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

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

constexpr size_t kNone = std::string_view::npos;

Error BadFormat(std::string_view expected) {
  return Invalid(fmt::format("format: expected {}, found something else; correct the pattern", expected));
}

Status CheckLength(const std::string& text) {
  if (std::ssize(text) > kMaxWeight) return Invalid("format: expected a shorter result, found one that is too long");
  return {};
}

// One run of the % operator.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& pattern, const Value& values)
      : runtime_(runtime), pattern_(pattern), values_(values), rest_(pattern.text()) {}

  Result<Value> Run() {
    std::string out;
    while (!rest_.empty()) {
      const size_t percent = std::min(rest_.find('%'), rest_.size());
      out += rest_.substr(0, percent);
      rest_.remove_prefix(percent);
      if (rest_.empty()) break;
      rest_.remove_prefix(1);
      TRY(Field(&out));
      TRY(CheckLength(out));
    }
    const bool is_tuple = values_.Is(Kind::kTuple);
    const size_t given = is_tuple ? values_.items().size() : 1;
    const bool is_mapping =
        values_.Is(Kind::kDict) || values_.Is(Kind::kList) || values_.Is(Kind::kRange) || values_.IsUndefined();
    if (used_ < given && !is_mapping) return BadFormat("a place in the pattern for every value");
    return Value::String(std::move(out), pattern_.IsMarkup());
  }

 private:
  bool Take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Result<Value> NextValue() {
    const bool is_tuple = values_.Is(Kind::kTuple);
    const size_t given = is_tuple ? values_.items().size() : 1;
    if (used_ >= given) return BadFormat("a value for every place in the pattern");
    ++used_;
    return is_tuple ? values_.items()[used_ - 1] : values_;
  }

  // (name) after the percent sign.
  Result<Value> NamedValue() {
    if (!values_.Is(Kind::kDict)) return BadFormat("a dictionary for the names in the pattern");
    int open = 1;
    size_t end = 0;
    for (; end < rest_.size(); ++end) {
      open += rest_[end] == '(' ? 1 : rest_[end] == ')' ? -1 : 0;
      if (open == 0) break;
    }
    if (open != 0) return BadFormat("a closing bracket after a name");
    const Value key = Value::String(std::string(rest_.substr(0, end)));
    rest_.remove_prefix(end + 1);
    TRY_ASSIGN(const Value* found, Lookup(values_.object<DictObject>(), key));
    if (found == nullptr) return BadFormat("names that the dictionary has");
    return *found;
  }

  // A number, or * for the next value; -1 when there is neither.
  Result<int64_t> Number(int64_t most) {
    int64_t number = -1;
    if (Take('*')) {
      TRY_ASSIGN(const Value value, NextValue());
      if (!value.IsIntegral()) return BadFormat("an integer for *");
      number = value.integer();
    }
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9' && number <= most) {
      number = std::max<int64_t>(number, 0) * 10 + (rest_[0] - '0');
      rest_.remove_prefix(1);
    }
    if (std::abs(std::max<int64_t>(number, -most - 1)) > most) return BadFormat("a smaller width and precision");
    return number;
  }

  Status ReadSpec(FormatSpec* spec) {
    spec->align = '>';
    bool zero = false;
    while (true) {
      if (Take('-')) {
        spec->align = '<';
      } else if (Take('+')) {
        spec->sign = '+';
      } else if (Take(' ')) {
        if (spec->sign == '-') spec->sign = ' ';
      } else if (Take('0')) {
        zero = true;
      } else if (Take('#')) {
        spec->alternate = true;
      } else {
        break;
      }
    }
    TRY_ASSIGN(const int64_t width, Number(kMaxWidth));
    if (width < -1) spec->align = '<';
    spec->width = width == -1 ? 0 : std::abs(width);
    if (Take('.')) {
      TRY_ASSIGN(const int64_t precision, Number(kMaxPrecision));
      spec->precision = std::max<int64_t>(precision, 0);
    }
    while (Take('h') || Take('l') || Take('L')) {
    }
    if (rest_.empty()) return BadFormat("a type after %");
    spec->type = rest_[0];
    rest_.remove_prefix(1);
    if (zero && spec->align == '>') {
      spec->zero = true;
      spec->align = '=';
      spec->fill = "0";
    }
    return {};
  }

  Status Field(std::string* out) {
    if (Take('%')) {
      *out += '%';
      return {};
    }
    std::optional<Value> value;
    if (Take('(')) {
      TRY_ASSIGN(value, NamedValue());
    }
    FormatSpec spec;
    TRY(ReadSpec(&spec));
    if (!value.has_value()) {
      TRY_ASSIGN(value, NextValue());
    }
    if (spec.type == '%') {
      *out += '%';
      return {};
    }
    TRY_ASSIGN(const std::string text, FormatOne(*value, spec));
    *out += text;
    return {};
  }

  Result<std::string> FormatOne(const Value& value, FormatSpec spec) {
    TRY(runtime_.ChargeDeep(value));
    if (spec.type == 's' || spec.type == 'r') {
      const std::string text = spec.type == 's' ? ToText(value) : Represent(value);
      const bool escape = pattern_.IsMarkup() && !(spec.type == 's' && value.IsMarkup());
      return Plain(escape ? EscapeHtml(text) : text, spec);
    }
    if (spec.type == 'c') {
      if (value.Is(Kind::kString) && value.length() == 1) return Plain(value.text(), spec);
      if (!value.IsIntegral()) return BadFormat("a character or its number for %c");
      spec.precision = -1;
      spec.fill = " ";
      if (spec.align == '=') spec.align = '>';
      return FormatNumber(value, spec);
    }
    static constexpr std::string_view kDecimal = "diu";
    static constexpr std::string_view kInteger = "xXo";
    static constexpr std::string_view kFloat = "eEfFgG";
    if (!value.IsNumber()) return BadFormat("a number for a number's place");
    if (kFloat.find(spec.type) != kNone) return FormatNumber(value, spec);
    if (kInteger.find(spec.type) != kNone && value.IsIntegral()) return FormatNumber(value, spec);
    if (kDecimal.find(spec.type) == kNone) return BadFormat("a type that fits the value after %");
    spec.type = 'd';
    spec.alternate = false;
    if (value.IsIntegral()) return FormatNumber(value, spec);
    const double whole = std::trunc(value.number());
    if (!(std::abs(whole) < 9.2e18)) return BadFormat("a number of at most 64 bits for %d");
    return FormatNumber(Value::Int(static_cast<int64_t>(whole)), spec);
  }

  // Texts know no sign, no zero padding and no alternate form.
  static Result<std::string> Plain(std::string_view text, const FormatSpec& spec) {
    FormatSpec plain;
    plain.align = spec.align == '<' ? '<' : '>';
    plain.width = spec.width;
    plain.precision = spec.type == 'c' ? -1 : spec.precision;
    return FormatText(text, plain);
  }

  Runtime& runtime_;
  const Value& pattern_;
  const Value& values_;
  std::string_view rest_;
  size_t used_ = 0;
};

// One run of str.format.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Value& pattern, const CallArguments& arguments)
      : runtime_(runtime), markup_(pattern.IsMarkup()), arguments_(arguments) {}

  // `depth` counts patterns inside format specifications, of which Python allows one level.
  Result<std::string> Run(std::string_view pattern, int depth) {
    if (depth > 1) return BadFormat("at most one level of fields inside fields");
    std::string out;
    while (!pattern.empty()) {
      const size_t brace = std::min(pattern.find_first_of("{}"), pattern.size());
      out += pattern.substr(0, brace);
      pattern.remove_prefix(brace);
      if (pattern.empty()) break;
      if (pattern.size() > 1 && pattern[1] == pattern[0]) {
        out += pattern[0];
        pattern.remove_prefix(2);
        continue;
      }
      const size_t end = pattern[0] == '{' ? FieldEnd(pattern) : kNone;
      if (end == kNone) return BadFormat("balanced braces");
      TRY_ASSIGN(const std::string field, Field(pattern.substr(1, end - 1), depth));
      out += field;
      TRY(CheckLength(out));
      pattern.remove_prefix(end + 1);
    }
    return out;
  }

 private:
  static size_t FieldEnd(std::string_view pattern) {
    int open = 0;
    for (size_t i = 0; i < pattern.size(); ++i) {
      open += pattern[i] == '{' ? 1 : pattern[i] == '}' ? -1 : 0;
      if (open == 0) return i;
    }
    return kNone;
  }

  // name[!conversion][:specification]
  Result<std::string> Field(std::string_view field, int depth) {
    size_t name_end = 0;
    bool in_brackets = false;
    for (; name_end < field.size(); ++name_end) {
      const char c = field[name_end];
      in_brackets = in_brackets ? c != ']' : c == '[';
      if (!in_brackets && (c == '!' || c == ':')) break;
    }
    TRY_ASSIGN(Value value, Named(field.substr(0, name_end)));
    field.remove_prefix(name_end);
    if (field.starts_with('!')) {
      const char conversion = field.size() > 1 ? field[1] : ' ';
      if ((conversion != 's' && conversion != 'r') || (field.size() > 2 && field[2] != ':')) {
        return BadFormat("!s or !r");
      }
      TRY(runtime_.ChargeDeep(value));
      value = Value::String(conversion == 's' ? ToText(value) : Represent(value));
      field.remove_prefix(2);
    }
    std::string spec_text;
    if (field.starts_with(':')) {
      TRY_ASSIGN(spec_text, Run(field.substr(1), depth + 1));
    }
    TRY_ASSIGN(std::string text, FormatOne(value, spec_text));
    return markup_ && !value.IsMarkup() ? EscapeHtml(text) : text;
  }

  Result<std::string> FormatOne(const Value& value, const std::string& spec_text) {
    if (spec_text.empty()) return TextOf(runtime_, value);
    TRY_ASSIGN(FormatSpec spec, ParseFormatSpec(spec_text));
    if (value.Is(Kind::kString)) return FormatText(value.text(), spec);
    if (!value.IsNumber()) return BadFormat("no specification for a value that is no string and no number");
    return FormatNumber(value, spec);
  }

  // first(.attribute|[item])*
  Result<Value> Named(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    TRY_ASSIGN(Value value, First(name.substr(0, first_end)));
    name.remove_prefix(first_end);
    while (!name.empty()) {
      const bool is_item = name[0] == '[';
      name.remove_prefix(1);
      const size_t end = is_item ? name.find(']') : std::min(name.find_first_of(".["), name.size());
      if (end == kNone || end == 0) return BadFormat("a name or index in a field");
      const std::string part(name.substr(0, end));
      name.remove_prefix(is_item ? end + 1 : end);
      if (is_item && !name.empty() && name[0] != '.' && name[0] != '[') return BadFormat("a dot after a bracket");
      if (is_item) {
        const Result<int64_t> index = ParseInt(part, "index");
        const bool is_index = index.ok() && IsAll(part, TextClass::kDigit);
        TRY_ASSIGN(value, GetItem(runtime_, value, is_index ? Value::Int(*index) : Value::String(part)));
      } else {
        TRY_ASSIGN(value, GetAttribute(runtime_, value, part));
      }
    }
    return value;
  }

  Result<Value> First(std::string_view name) {
    const bool is_index = !name.empty() && IsAll(name, TextClass::kDigit);
    if (name.empty() || is_index) {
      const bool automatic = name.empty();
      if (automatic ? manual_ : next_ > 0) return BadFormat("either numbered or unnumbered fields");
      manual_ |= !automatic;
      const Result<int64_t> index = automatic ? Result<int64_t>(next_++) : ParseInt(name, "index");
      if (!index.ok() || *index >= std::ssize(arguments_.positional))
        return BadFormat("fewer fields or more arguments");
      return arguments_.positional[static_cast<size_t>(*index)];
    }
    for (const auto& [key, value] : arguments_.keywords) {
      if (key == name) return value;
    }
    return BadFormat("fields that the arguments have");
  }

  Runtime& runtime_;
  const bool markup_;
  const CallArguments& arguments_;
  int64_t next_ = 0;
  bool manual_ = false;
};

}  // namespace

Result<Value> FormatPercent(Runtime& runtime, const Value& pattern, const Value& values) {
  return PercentFormatter(runtime, pattern, values).Run();
}

Result<Value> FormatBraces(Runtime& runtime, const Value& pattern, const CallArguments& arguments) {
  TRY_ASSIGN(std::string text, BraceFormatter(runtime, pattern, arguments).Run(pattern.text(), 0));
  return Value::String(std::move(text), pattern.IsMarkup());
}

Result<std::string> FormatTimeNow(const std::string& pattern) {
  if (pattern.size() > 1000)
    return Invalid("strftime_now: expected at most 1000 bytes, found more; shorten the pattern");
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  std::tm local{};
  if (::localtime_r(&seconds, &local) == nullptr) return Invalid("strftime_now: expected a local time, found none");
  std::string c_pattern;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      c_pattern += pattern[i];
      continue;
    }
    ++i;
    c_pattern += pattern[i] == 'f' ? fmt::format("{:06}", micros) : std::string("%") + pattern[i];
  }
  // A leading character tells an empty result from a buffer that is too small; widths are refused by the bound.
  c_pattern.insert(0, 1, '.');
  std::vector<char> buffer(16 * (c_pattern.size() + 64));
  const size_t size = std::strftime(buffer.data(), buffer.size(), c_pattern.c_str(), &local);
  if (size == 0) return Invalid("strftime_now: expected a pattern of a date, found one whose result is too long");
  return RepairUtf8(std::string_view(buffer.data() + 1, size - 1));
}

}  // namespace trivet::text::jinja
