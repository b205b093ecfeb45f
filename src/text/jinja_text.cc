// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "text/unicode.h"

namespace trivet::text::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Characters whose upper or title case is more than one character (SpecialCasing.txt, entries without conditions).
struct Expansion {
  char32_t value;
  char32_t upper[3];
  char32_t title[3];
};
constexpr Expansion kExpansions[] = {
    // clang-format off
    {0xdf, {0x53, 0x53}, {0x53, 0x73}}, {0x149, {0x2bc, 0x4e}, {0x2bc, 0x4e}}, {0x1f0, {0x4a, 0x30c}, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}}, {0x3b0, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}}, {0x1e96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}, {0x54, 0x308}}, {0x1e98, {0x57, 0x30a}, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}, {0x59, 0x30a}}, {0x1e9a, {0x41, 0x2be}, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}, {0x3a5, 0x313}}, {0x1f52, {0x3a5, 0x313, 0x300}, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}, {0x3a5, 0x313, 0x301}}, {0x1f56, {0x3a5, 0x313, 0x342}, {0x3a5, 0x313, 0x342}},
    {0x1f80, {0x1f08, 0x399}, {0x1f88}}, {0x1f81, {0x1f09, 0x399}, {0x1f89}}, {0x1f82, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f83, {0x1f0b, 0x399}, {0x1f8b}}, {0x1f84, {0x1f0c, 0x399}, {0x1f8c}}, {0x1f85, {0x1f0d, 0x399}, {0x1f8d}},
    {0x1f86, {0x1f0e, 0x399}, {0x1f8e}}, {0x1f87, {0x1f0f, 0x399}, {0x1f8f}}, {0x1f88, {0x1f08, 0x399}, {0x1f88}},
    {0x1f89, {0x1f09, 0x399}, {0x1f89}}, {0x1f8a, {0x1f0a, 0x399}, {0x1f8a}}, {0x1f8b, {0x1f0b, 0x399}, {0x1f8b}},
    {0x1f8c, {0x1f0c, 0x399}, {0x1f8c}}, {0x1f8d, {0x1f0d, 0x399}, {0x1f8d}}, {0x1f8e, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f8f, {0x1f0f, 0x399}, {0x1f8f}}, {0x1f90, {0x1f28, 0x399}, {0x1f98}}, {0x1f91, {0x1f29, 0x399}, {0x1f99}},
    {0x1f92, {0x1f2a, 0x399}, {0x1f9a}}, {0x1f93, {0x1f2b, 0x399}, {0x1f9b}}, {0x1f94, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f95, {0x1f2d, 0x399}, {0x1f9d}}, {0x1f96, {0x1f2e, 0x399}, {0x1f9e}}, {0x1f97, {0x1f2f, 0x399}, {0x1f9f}},
    {0x1f98, {0x1f28, 0x399}, {0x1f98}}, {0x1f99, {0x1f29, 0x399}, {0x1f99}}, {0x1f9a, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f9b, {0x1f2b, 0x399}, {0x1f9b}}, {0x1f9c, {0x1f2c, 0x399}, {0x1f9c}}, {0x1f9d, {0x1f2d, 0x399}, {0x1f9d}},
    {0x1f9e, {0x1f2e, 0x399}, {0x1f9e}}, {0x1f9f, {0x1f2f, 0x399}, {0x1f9f}}, {0x1fa0, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa1, {0x1f69, 0x399}, {0x1fa9}}, {0x1fa2, {0x1f6a, 0x399}, {0x1faa}}, {0x1fa3, {0x1f6b, 0x399}, {0x1fab}},
    {0x1fa4, {0x1f6c, 0x399}, {0x1fac}}, {0x1fa5, {0x1f6d, 0x399}, {0x1fad}}, {0x1fa6, {0x1f6e, 0x399}, {0x1fae}},
    {0x1fa7, {0x1f6f, 0x399}, {0x1faf}}, {0x1fa8, {0x1f68, 0x399}, {0x1fa8}}, {0x1fa9, {0x1f69, 0x399}, {0x1fa9}},
    {0x1faa, {0x1f6a, 0x399}, {0x1faa}}, {0x1fab, {0x1f6b, 0x399}, {0x1fab}}, {0x1fac, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fad, {0x1f6d, 0x399}, {0x1fad}}, {0x1fae, {0x1f6e, 0x399}, {0x1fae}}, {0x1faf, {0x1f6f, 0x399}, {0x1faf}},
    {0x1fb2, {0x1fba, 0x399}, {0x1fba, 0x345}}, {0x1fb3, {0x391, 0x399}, {0x1fbc}},
    {0x1fb4, {0x386, 0x399}, {0x386, 0x345}}, {0x1fb6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}}, {0x1fbc, {0x391, 0x399}, {0x1fbc}},
    {0x1fc2, {0x1fca, 0x399}, {0x1fca, 0x345}}, {0x1fc3, {0x397, 0x399}, {0x1fcc}},
    {0x1fc4, {0x389, 0x399}, {0x389, 0x345}}, {0x1fc6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}}, {0x1fcc, {0x397, 0x399}, {0x1fcc}},
    {0x1fd2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}}, {0x1fd3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}, {0x399, 0x342}}, {0x1fd7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}, {0x3a5, 0x308, 0x300}}, {0x1fe3, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}, {0x3a1, 0x313}}, {0x1fe6, {0x3a5, 0x342}, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}, {0x3a5, 0x308, 0x342}}, {0x1ff2, {0x1ffa, 0x399}, {0x1ffa, 0x345}},
    {0x1ff3, {0x3a9, 0x399}, {0x1ffc}}, {0x1ff4, {0x38f, 0x399}, {0x38f, 0x345}},
    {0x1ff6, {0x3a9, 0x342}, {0x3a9, 0x342}}, {0x1ff7, {0x3a9, 0x342, 0x399}, {0x3a9, 0x342, 0x345}},
    {0x1ffc, {0x3a9, 0x399}, {0x1ffc}}, {0xfb00, {0x46, 0x46}, {0x46, 0x66}}, {0xfb01, {0x46, 0x49}, {0x46, 0x69}},
    {0xfb02, {0x46, 0x4c}, {0x46, 0x6c}}, {0xfb03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xfb04, {0x46, 0x46, 0x4c}, {0x46, 0x66, 0x6c}}, {0xfb05, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb06, {0x53, 0x54}, {0x53, 0x74}}, {0xfb13, {0x544, 0x546}, {0x544, 0x576}},
    {0xfb14, {0x544, 0x535}, {0x544, 0x565}}, {0xfb15, {0x544, 0x53b}, {0x544, 0x56b}},
    {0xfb16, {0x54e, 0x546}, {0x54e, 0x576}}, {0xfb17, {0x544, 0x53d}, {0x544, 0x56d}},
    // clang-format on
};

// Numeric_Type=Digit outside the decimal digits, as ranges.
constexpr char32_t kDigitRanges[][2] = {
    {0xb2, 0xb3},     {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},   {0x2488, 0x2490},
    {0x24ea, 0x24ea}, {0x24f5, 0x24fd},   {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
    {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

utf8proc_category_t Category(char32_t value) { return utf8proc_category(static_cast<utf8proc_int32_t>(value)); }

bool IsLetter(char32_t value) {
  const auto category = Category(value);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsNumeral(char32_t value) {
  const auto category = Category(value);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsDecimal(char32_t value) { return Category(value) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(char32_t value) {
  if (IsDecimal(value)) return true;
  return std::any_of(std::begin(kDigitRanges), std::end(kDigitRanges),
                     [&](const auto& range) { return value >= range[0] && value <= range[1]; });
}

bool IsLowerCase(char32_t value) { return utf8proc_islower(static_cast<utf8proc_int32_t>(value)) != 0; }
bool IsTitleCase(char32_t value) { return Category(value) == UTF8PROC_CATEGORY_LT; }
bool IsUpperCase(char32_t value) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(value)) != 0 && !IsTitleCase(value);
}
bool IsCased(char32_t value) { return IsLowerCase(value) || IsUpperCase(value) || IsTitleCase(value); }

// Property Case_Ignorable: marks, format characters, modifiers and the word-internal punctuation.
bool IsCaseIgnorable(char32_t value) {
  switch (Category(value)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  constexpr char32_t kWordInternal[] = {'\'',   '.',    ':',    0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                        0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
  return std::find(std::begin(kWordInternal), std::end(kWordInternal), value) != std::end(kWordInternal);
}

const Expansion* FindExpansion(char32_t value) {
  const auto* found = std::lower_bound(std::begin(kExpansions), std::end(kExpansions), value,
                                       [](const Expansion& entry, char32_t key) { return entry.value < key; });
  return found != std::end(kExpansions) && found->value == value ? found : nullptr;
}

void AppendAll(const char32_t (&values)[3], std::string* out) {
  for (const char32_t value : values) {
    if (value != 0) AppendUtf8(value, out);
  }
}

void AppendUpper(char32_t value, std::string* out) {
  if (const Expansion* entry = FindExpansion(value)) return AppendAll(entry->upper, out);
  AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(value))), out);
}

void AppendTitle(char32_t value, std::string* out) {
  if (const Expansion* entry = FindExpansion(value)) return AppendAll(entry->title, out);
  AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(value))), out);
}

// A capital sigma is written as a final sigma when letters precede it in the word and none follows.
bool IsFinalSigma(std::string_view text, size_t at, size_t length) {
  size_t before = at;
  bool preceded = false;
  while (before > 0) {
    const CodePoint point = CodePointBefore(text, before);
    before -= point.length;
    if (IsCaseIgnorable(point.value)) continue;
    preceded = IsCased(point.value);
    break;
  }
  if (!preceded) return false;
  for (size_t after = at + length; after < text.size();) {
    const CodePoint point = CodePointAt(text, after);
    after += point.length;
    if (!IsCaseIgnorable(point.value)) return !IsCased(point.value);
  }
  return true;
}

void AppendLower(std::string_view text, size_t at, CodePoint point, std::string* out) {
  if (point.value == 0x3a3) return AppendUtf8(IsFinalSigma(text, at, point.length) ? 0x3c2 : 0x3c3, out);
  AppendLowercase(point.value, out);
}

template <class Visit>
void ForEach(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    visit(point, at);
    at += point.length;
  }
}

bool IsLineEnd(char32_t value) {
  return (value >= 0xa && value <= 0xd) || (value >= 0x1c && value <= 0x1e) || value == 0x85 || value == 0x2028 ||
         value == 0x2029;
}

// Words of one case or of capitals: `upper` tells which letters are allowed besides those without case.
bool IsOneCase(std::string_view text, bool upper) {
  bool any = false, all = true;
  ForEach(text, [&](CodePoint point, size_t) {
    const bool wanted = upper ? IsUpperCase(point.value) : IsLowerCase(point.value);
    any |= wanted;
    all &= wanted || !IsCased(point.value);
  });
  return any && all;
}

bool IsTitleText(std::string_view text) {
  bool any = false, all = true, in_word = false;
  ForEach(text, [&](CodePoint point, size_t) {
    const bool capital = IsUpperCase(point.value) || IsTitleCase(point.value);
    if (capital) all &= !in_word;
    if (IsLowerCase(point.value)) all &= in_word;
    in_word = IsCased(point.value);
    any |= in_word;
  });
  return any && all;
}

bool IsOfClass(char32_t value, TextClass kind) {
  switch (kind) {
    case TextClass::kAlpha:
      return IsLetter(value);
    case TextClass::kDigit:
      return IsDigit(value);
    case TextClass::kDecimal:
      return IsDecimal(value);
    case TextClass::kAlnum:
      return IsLetter(value) || IsNumeral(value);
    case TextClass::kSpace:
      return IsSpace(value);
    case TextClass::kAscii:
      return value < 0x80;
    default:
      return IsPrintable(value);
  }
}

}  // namespace

int64_t CountCodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

size_t ByteOffset(std::string_view text, int64_t index) {
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80 && index-- == 0) return at;
  }
  return text.size();
}

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at < text.size() && pieces.size() <= kMaxItems;) {
    const size_t length = CodePointAt(text, at).length;
    pieces.push_back(text.substr(at, length));
    at += length;
  }
  return pieces;
}

bool IsSpace(char32_t value) { return IsWhiteSpace(value) || (value >= 0x1c && value <= 0x1f); }

bool IsPrintable(char32_t value) {
  if (value == ' ') return true;
  const auto category = Category(value);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool IsWord(char32_t value) {
  return IsLetter(value) || IsNumeral(value) || IsMark(value) || Category(value) == UTF8PROC_CATEGORY_PC;
}

std::string_view Strip(std::string_view text, StripSides sides, std::optional<std::string_view> chars) {
  std::vector<char32_t> set;
  if (chars.has_value()) {
    ForEach(*chars, [&](CodePoint point, size_t) { set.push_back(point.value); });
    std::sort(set.begin(), set.end());
  }
  const auto goes = [&](char32_t value) {
    return chars.has_value() ? std::binary_search(set.begin(), set.end(), value) : IsSpace(value);
  };
  while (sides.left && !text.empty()) {
    const CodePoint point = CodePointAt(text, 0);
    if (!goes(point.value)) break;
    text.remove_prefix(point.length);
  }
  while (sides.right && !text.empty()) {
    const CodePoint point = CodePointBefore(text, text.size());
    if (!goes(point.value)) break;
    text.remove_suffix(point.length);
  }
  return text;
}

std::string Upper(std::string_view text) {
  std::string out;
  ForEach(text, [&](CodePoint point, size_t) { AppendUpper(point.value, &out); });
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  ForEach(text, [&](CodePoint point, size_t at) { AppendLower(text, at, point, &out); });
  return out;
}

std::string Title(std::string_view text) {
  std::string out;
  bool in_word = false;
  ForEach(text, [&](CodePoint point, size_t at) {
    if (in_word) {
      AppendLower(text, at, point, &out);
    } else {
      AppendTitle(point.value, &out);
    }
    in_word = IsCased(point.value);
  });
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  ForEach(text, [&](CodePoint point, size_t at) {
    if (at == 0) {
      AppendTitle(point.value, &out);
    } else {
      AppendLower(text, at, point, &out);
    }
  });
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  ForEach(text, [&](CodePoint point, size_t at) {
    if (IsUpperCase(point.value)) {
      AppendLower(text, at, point, &out);
    } else if (IsLowerCase(point.value)) {
      AppendUpper(point.value, &out);
    } else {
      AppendUtf8(point.value, &out);
    }
  });
  return out;
}

std::string CaseFold(std::string_view text) {
  std::string out;
  ForEach(text, [&](CodePoint point, size_t) {
    utf8proc_int32_t folded[4];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.value), folded, 4, UTF8PROC_CASEFOLD, &boundary);
    for (int i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(folded[i]), &out);
  });
  return out;
}

bool IsAll(std::string_view text, TextClass kind) {
  if (kind == TextClass::kLower || kind == TextClass::kUpper) return IsOneCase(text, kind == TextClass::kUpper);
  if (kind == TextClass::kTitle) return IsTitleText(text);
  if (text.empty()) return kind == TextClass::kAscii || kind == TextClass::kPrintable;
  bool all = true;
  ForEach(text, [&](CodePoint point, size_t) { all &= IsOfClass(point.value, kind); });
  return all;
}

size_t Find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return kNone;
  // memmem is linear in the worst case; std::string_view::find is not.
  const void* found = ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? kNone : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLast(std::string_view text, std::string_view needle) {
  const std::string backwards(text.rbegin(), text.rend());
  const size_t found = Find(backwards, std::string(needle.rbegin(), needle.rend()));
  return found == kNone ? kNone : text.size() - found - needle.size();
}

int64_t CountOccurrences(std::string_view text, std::string_view needle) {
  if (needle.empty()) return CountCodePoints(text) + 1;
  int64_t count = 0;
  for (size_t at = Find(text, needle); at != kNone; at = Find(text, needle, at + needle.size())) ++count;
  return count;
}

std::vector<std::string_view> SplitOn(std::string_view text, std::string_view separator, SplitOptions options) {
  const int64_t most = options.max_splits < 0 ? kMaxItems : std::min(options.max_splits, kMaxItems);
  std::vector<size_t> cuts;
  if (options.from_right) {
    const std::string backwards(text.rbegin(), text.rend());
    const std::string needle(separator.rbegin(), separator.rend());
    for (size_t at = Find(backwards, needle); at != kNone && std::ssize(cuts) < most;
         at = Find(backwards, needle, at + needle.size())) {
      cuts.push_back(text.size() - at - needle.size());
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    for (size_t at = Find(text, separator); at != kNone && std::ssize(cuts) < most;
         at = Find(text, separator, at + separator.size())) {
      cuts.push_back(at);
    }
  }
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    pieces.push_back(text.substr(begin, cut - begin));
    begin = cut + separator.size();
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::vector<std::string_view> SplitSpace(std::string_view text, SplitOptions options) {
  const int64_t most = options.max_splits < 0 ? kMaxItems : std::min(options.max_splits, kMaxItems);
  const StripSides near_side{!options.from_right, options.from_right};
  std::vector<std::string_view> pieces;
  text = Strip(text, near_side);
  while (!text.empty() && std::ssize(pieces) < most) {
    size_t at = options.from_right ? text.size() : 0;
    while (options.from_right ? at > 0 : at < text.size()) {
      const CodePoint point = options.from_right ? CodePointBefore(text, at) : CodePointAt(text, at);
      if (IsSpace(point.value)) break;
      at = options.from_right ? at - point.length : at + point.length;
    }
    pieces.push_back(options.from_right ? text.substr(at) : text.substr(0, at));
    text = Strip(options.from_right ? text.substr(0, at) : text.substr(at), near_side);
  }
  if (!text.empty()) pieces.push_back(text);
  if (options.from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size() && std::ssize(lines) <= kMaxItems;) {
    const CodePoint point = CodePointAt(text, at);
    size_t next = at + point.length;
    if (IsLineEnd(point.value)) {
      if (point.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::optional<std::string> Replace(std::string_view text, const Replacement& replacement, size_t max_bytes) {
  const auto [old, with, count] = replacement;
  std::string out;
  size_t begin = 0;
  int64_t done = 0;
  if (old.empty()) {
    for (; begin < text.size() && done != count && out.size() <= max_bytes; ++done) {
      const size_t length = CodePointAt(text, begin).length;
      out.append(with).append(text.substr(begin, length));
      begin += length;
    }
    out.append(text.substr(begin));
    if (done != count) out.append(with);
  } else {
    for (size_t at = Find(text, old); at != kNone && done != count && out.size() <= max_bytes; ++done) {
      out.append(text.substr(begin, at - begin)).append(with);
      begin = at + old.size();
      at = Find(text, old, begin);
    }
    out.append(text.substr(begin));
  }
  if (out.size() > max_bytes) return std::nullopt;
  return out;
}

}  // namespace trivet::text::jinja
