// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_format_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_print.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace trivet::text::jinja {
namespace {

Error BadSpec(std::string_view found) {
  return Invalid(fmt::format("expected a format that fits the value, found \"{}\"; correct it", found));
}

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

// Takes a decimal number off the front of `text`; -1 when there is none.
Result<int64_t> TakeNumber(std::string_view* text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (text->empty() || text->front() == '-' || error == std::errc::invalid_argument) return int64_t{-1};
  if (error != std::errc() || value > most) {
    return Invalid(fmt::format("expected a width or precision of at most {}, found a larger one; lower it", most));
  }
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

bool TakeChar(std::string_view* text, std::string_view choices, char* out) {
  if (text->empty() || choices.find(text->front()) == std::string_view::npos) return false;
  *out = text->front();
  text->remove_prefix(1);
  return true;
}

// Separators between groups of digits before the point.
std::string Group(const std::string& digits, char separator, size_t size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string Pad(const std::string& prefix, std::string_view body, const FormatSpec& spec, char default_align) {
  const int64_t missing = spec.width - CountCodePoints(prefix) - CountCodePoints(body);
  const auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  const char align = spec.align != 0 ? spec.align : default_align;
  const std::string text(body);
  if (missing <= 0) return prefix + text;
  if (align == '=') return prefix + fill(missing) + text;
  if (align == '<') return prefix + text + fill(missing);
  if (align == '>') return fill(missing) + prefix + text;
  return fill(missing / 2) + prefix + text + fill(missing - missing / 2);
}

std::string SignText(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

// A float without a type but with a precision: like g, with a digit after the point, and an exponent one digit earlier.
std::string GeneralWithPoint(double value, int precision) {
  precision = std::max(precision, 1);
  std::string scientific = fmt::format("{:.{}e}", value, precision - 1);
  const size_t e = scientific.find('e');
  int exponent = 0;
  const std::string digits = scientific.substr(scientific[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  if (exponent >= -4 && exponent < precision - 1) {
    const std::string text = fmt::format("{:.{}g}", value, precision);
    return text.find('.') == std::string::npos ? text + ".0" : text;
  }
  std::string mantissa = scientific.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  return mantissa + scientific.substr(e);
}

std::string FloatDigits(double magnitude, const FormatSpec& spec) {
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    const bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
    const std::string text = std::isnan(magnitude) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    return spec.type == '%' ? text + "%" : text;
  }
  const bool alternate = spec.alternate;
  switch (spec.type) {
    case 'f':
    case 'F':
      return alternate ? fmt::format("{:#.{}f}", magnitude, precision) : fmt::format("{:.{}f}", magnitude, precision);
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    case 'e':
      return alternate ? fmt::format("{:#.{}e}", magnitude, precision) : fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return alternate ? fmt::format("{:#.{}E}", magnitude, precision) : fmt::format("{:.{}E}", magnitude, precision);
    case 'G':
      return alternate ? fmt::format("{:#.{}G}", magnitude, precision) : fmt::format("{:.{}G}", magnitude, precision);
    case 'n':
    case 'g':
      return alternate ? fmt::format("{:#.{}g}", magnitude, precision) : fmt::format("{:.{}g}", magnitude, precision);
    default:
      return spec.precision < 0 ? FloatText(magnitude) : GeneralWithPoint(magnitude, precision);
  }
}

Result<std::string> FormatFloat(double value, const FormatSpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  std::string digits = FloatDigits(std::abs(value), spec);
  if (spec.grouping != 0) digits = Group(digits, spec.grouping, 3);
  return Pad(SignText(negative, spec.sign), digits, spec, spec.zero ? '=' : '>');
}

Result<std::string> FormatCharacter(int64_t value, const FormatSpec& spec) {
  if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
    return Invalid("expected the number of a Unicode character, found another number; correct it");
  }
  std::string text;
  AppendUtf8(static_cast<char32_t>(value), &text);
  return Pad("", text, spec, '<');
}

Result<std::string> FormatInteger(int64_t value, const FormatSpec& spec) {
  if (spec.type == 'c') return FormatCharacter(value, spec);
  const uint64_t magnitude = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
  char buffer[72];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
  CHECK(error == std::errc());
  std::string digits(buffer, end);
  if (spec.type == 'X') digits = Upper(digits);
  if (spec.precision > std::ssize(digits)) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.grouping != 0) digits = Group(digits, spec.grouping, base == 10 ? 3 : 4);
  std::string prefix = SignText(value < 0, spec.sign);
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
  return Pad(prefix, digits, spec, spec.zero ? '=' : '>');
}

}  // namespace

Result<FormatSpec> ParseFormatSpec(std::string_view text) {
  const std::string_view whole = text;
  FormatSpec spec;
  const size_t first = text.empty() ? 0 : CodePointAt(text, 0).length;
  if (first > 0 && text.size() > first && IsAlign(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else {
    TakeChar(&text, "<>^=", &spec.align);
  }
  TakeChar(&text, "+- ", &spec.sign);
  char mark = 0;
  spec.alternate = TakeChar(&text, "#", &mark);
  if (TakeChar(&text, "0", &mark) && spec.align == 0) {
    spec.fill = "0";
    spec.zero = true;
  }
  TRY_ASSIGN(const int64_t width, TakeNumber(&text, kMaxWidth));
  spec.width = std::max<int64_t>(width, 0);
  TakeChar(&text, ",_", &spec.grouping);
  if (TakeChar(&text, ".", &mark)) {
    TRY_ASSIGN(spec.precision, TakeNumber(&text, kMaxPrecision));
    if (spec.precision < 0) return BadSpec(whole);
  }
  TakeChar(&text, "bcdeEfFgGnosxX%", &spec.type);
  if (!text.empty()) return BadSpec(whole);
  return spec;
}

Result<std::string> FormatNumber(const Value& value, const FormatSpec& spec) {
  static constexpr std::string_view kIntegerTypes = "bcdoxX";
  static constexpr std::string_view kFloatTypes = "eEfFgG%";
  const bool is_integer_type = spec.type != 0 && kIntegerTypes.find(spec.type) != std::string_view::npos;
  const bool is_float_type = spec.type != 0 && kFloatTypes.find(spec.type) != std::string_view::npos;
  if (spec.type == 's' || (value.Is(Kind::kFloat) && is_integer_type)) return BadSpec(std::string(1, spec.type));
  if (value.Is(Kind::kFloat) || is_float_type) return FormatFloat(value.number(), spec);
  return FormatInteger(value.integer(), spec);
}

Result<std::string> FormatText(std::string_view text, const FormatSpec& spec) {
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != '-' || spec.alternate ||
      spec.grouping != 0) {
    return BadSpec("a number's format");
  }
  if (spec.precision >= 0) text = text.substr(0, ByteOffset(text, spec.precision));
  return Pad("", text, spec, '<');
}

}  // namespace trivet::text::jinja
