// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace trivet::text {
namespace {

constexpr char32_t kFirstAlias = 0x100;  // code points of the bytes that are not printable start here
constexpr int kAliases = 68;

constexpr bool IsPrintableByte(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct ByteLevelTable {
  std::array<char32_t, 256> of_byte{};
  std::array<uint8_t, kAliases> of_alias{};
};

constexpr ByteLevelTable MakeByteLevelTable() {
  ByteLevelTable table;
  size_t alias = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (IsPrintableByte(byte)) {
      table.of_byte[static_cast<size_t>(byte)] = static_cast<char32_t>(byte);
    } else {
      table.of_byte[static_cast<size_t>(byte)] = kFirstAlias + static_cast<char32_t>(alias);
      table.of_alias[alias++] = static_cast<uint8_t>(byte);
    }
  }
  return table;
}

constexpr ByteLevelTable kByteLevel = MakeByteLevelTable();

size_t LengthOfLead(unsigned char lead) { return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4; }

bool IsAscii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

// Everything below U+0300 is in NFC as it stands; those characters have lead bytes below 0xCC.
bool IsBelowCombining(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0xcc) return false;
  }
  return true;
}

std::vector<utf8proc_int32_t> Decompose(std::string_view text, utf8proc_option_t options) {
  constexpr int kLongest = 32;  // the longest decomposition of one character is 18 code points
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  int unused_boundary = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    at += point.length;
    utf8proc_int32_t parts[kLongest];
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.value), parts, kLongest, options, &unused_boundary);
    CHECK_MSG(count >= 0 && count <= kLongest, std::to_string(count));
    points.insert(points.end(), parts, parts + count);
  }
  return points;
}

// Canonical order of every run of combining marks. The library's own ordering takes quadratic time on long runs.
void OrderMarks(std::vector<utf8proc_int32_t>* points) {
  const auto combining_class = [](utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; };
  for (auto begin = points->begin(); begin != points->end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, points->end(), [&](auto point) { return combining_class(point) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

CodePoint CodePointAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  const size_t length = LengthOfLead(lead);
  CHECK(at + length <= text.size());
  if (length == 1) return {lead, 1};
  char32_t value = lead & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) value = value << 6 | (byte(i) & 0x3fU);
  return {value, length};
}

CodePoint CodePointBefore(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return CodePointAt(text, at);
}

void AppendUtf8(char32_t value, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xc0 | value >> 6);
    put(0x80 | (value & 0x3f));
  } else if (value < 0x10000) {
    put(0xe0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3f));
    put(0x80 | (value & 0x3f));
  } else {
    put(0xf0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3f));
    put(0x80 | (value >> 6 & 0x3f));
    put(0x80 | (value & 0x3f));
  }
}

std::optional<char32_t> OnlyCodePoint(std::string_view text) {
  if (text.empty() || LengthOfLead(static_cast<unsigned char>(text[0])) != text.size()) return std::nullopt;
  return CodePointAt(text, 0).value;
}

bool IsWhiteSpace(char32_t value) {
  return (value >= 0x9 && value <= 0xd) || value == 0x20 || value == 0x85 || value == 0xa0 || value == 0x1680 ||
         (value >= 0x2000 && value <= 0x200a) || value == 0x2028 || value == 0x2029 || value == 0x202f ||
         value == 0x205f || value == 0x3000;
}

bool IsMark(char32_t value) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(value));
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

void AppendLowercase(char32_t value, std::string* out) {
  // The only code point whose lower case is two code points without a language or a neighbour being known.
  if (value == 0x130) {
    out->append("i\xCC\x87");
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value))), out);
}

std::string Normalize(std::string_view text, NormalForm form) {
  if (form == NormalForm::kNfc ? IsBelowCombining(text) : IsAscii(text)) return std::string(text);
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  std::vector<utf8proc_int32_t> points = Decompose(text, static_cast<utf8proc_option_t>(options));
  OrderMarks(&points);
  const auto count = static_cast<utf8proc_ssize_t>(points.size());
  points.push_back(0);  // the library ends its text with a zero byte
  const utf8proc_ssize_t length = utf8proc_reencode(points.data(), count, static_cast<utf8proc_option_t>(options));
  CHECK_MSG(length >= 0, utf8proc_errmsg(length));
  return std::string(reinterpret_cast<const char*>(points.data()), static_cast<size_t>(length));
}

void AppendByteLevel(std::string_view bytes, std::string* out) {
  for (const char c : bytes) AppendUtf8(kByteLevel.of_byte[static_cast<unsigned char>(c)], out);
}

std::optional<uint8_t> ByteLevelByte(char32_t value) {
  if (value >= kFirstAlias && value < kFirstAlias + kAliases) return kByteLevel.of_alias[value - kFirstAlias];
  if (value < kFirstAlias && IsPrintableByte(static_cast<int>(value))) return static_cast<uint8_t>(value);
  return std::nullopt;
}

}  // namespace trivet::text
