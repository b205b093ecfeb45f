// SPDX-License-Identifier: Apache-2.0
// Text functions of the template language, with the meaning that Python's str gives them: positions count code points,
// white space and letter case follow Unicode. All texts are valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::text::jinja {

/// The longest sequence a template may make; functions that cut text stop one piece beyond it.
inline constexpr int64_t kMaxItems = 1 << 20;

/// Number of code points.
int64_t CountCodePoints(std::string_view text);
/// Byte at which code point `index` starts; the size of `text` when it has no more than `index` code points.
size_t ByteOffset(std::string_view text, int64_t index);
/// One piece per code point, at most kMaxItems + 1.
std::vector<std::string_view> Characters(std::string_view text);

/// What str.isspace says of one code point.
bool IsSpace(char32_t value);
/// What str.isprintable says of one code point.
bool IsPrintable(char32_t value);
/// A letter, digit, mark or connector: what a regular expression calls \w.
bool IsWord(char32_t value);

/// `text` without the characters of `chars` (white space when absent) at the sides asked for.
struct StripSides {
  bool left = true;
  bool right = true;
};
/// A copy of `text` without white space, or without any of `chars`, at the chosen sides.
std::string_view Strip(std::string_view text, StripSides sides = {}, std::optional<std::string_view> chars = {});

/// Letter case as in Python, full mappings and the final sigma included.
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);
std::string CaseFold(std::string_view text);

/// The classes that str.isalpha and its relatives test.
enum class TextClass { kAlpha, kDigit, kDecimal, kAlnum, kSpace, kLower, kUpper, kTitle, kAscii, kPrintable };
bool IsAll(std::string_view text, TextClass kind);

/// First (last) byte at which `needle` starts, or npos; linear time.
size_t Find(std::string_view text, std::string_view needle, size_t from = 0);
size_t FindLast(std::string_view text, std::string_view needle);
/// Non-overlapping occurrences of `needle`; an empty one occurs around every character.
int64_t CountOccurrences(std::string_view text, std::string_view needle);

/// How often to cut: negative means no bound.
struct SplitOptions {
  int64_t max_splits = -1;
  bool from_right = false;
};
/// Pieces around `separator`, which is not empty.
std::vector<std::string_view> SplitOn(std::string_view text, std::string_view separator, SplitOptions options);
/// Pieces between runs of white space.
std::vector<std::string_view> SplitSpace(std::string_view text, SplitOptions options);
/// Lines; the line ends are those of str.splitlines.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

/// `text` with the first `count` (all when negative) occurrences of `old` replaced, or nothing when the result would be
/// longer than `max_bytes`.
struct Replacement {
  std::string_view old;
  std::string_view with;
  int64_t count = -1;
};
/// A copy with occurrences replaced; nothing when it would be longer than `max_bytes`.
std::optional<std::string> Replace(std::string_view text, const Replacement& replacement, size_t max_bytes);

}  // namespace trivet::text::jinja
