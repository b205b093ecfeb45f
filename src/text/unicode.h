// SPDX-License-Identifier: Apache-2.0
// Code points of valid UTF-8, the character classes that tokenizer files name, and the byte-level alphabet, which
// writes every byte as one printable character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trivet::text {

/// One code point and the number of bytes that spell it.
struct CodePoint {
  char32_t value;
  size_t length;
};

/// The code point at byte `at` of valid UTF-8; `at` is inside `text`, at the start of a character.
CodePoint CodePointAt(std::string_view text, size_t at);
/// The code point that ends at byte `end` of valid UTF-8; `end` is positive and a character boundary.
CodePoint CodePointBefore(std::string_view text, size_t end);
/// Appends `value` as UTF-8.
void AppendUtf8(char32_t value, std::string* out);
/// The code point of a text that is exactly one character, or nothing.
std::optional<char32_t> OnlyCodePoint(std::string_view text);

/// Unicode property White_Space.
bool IsWhiteSpace(char32_t value);
/// General category M (combining marks).
bool IsMark(char32_t value);
/// Appends the full lower-case mapping of one code point, without regard to its neighbours.
void AppendLowercase(char32_t value, std::string* out);

/// The Unicode normalization forms.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
/// Valid UTF-8 in the given Unicode normalization form.
std::string Normalize(std::string_view text, NormalForm form);

/// Appends `bytes` in the byte-level alphabet: 188 printable bytes stand for themselves as Latin-1 code points, the
/// other 68, in increasing order, are U+0100 to U+0143.
void AppendByteLevel(std::string_view bytes, std::string* out);
/// The byte that a character of the byte-level alphabet stands for, or nothing outside the alphabet.
std::optional<uint8_t> ByteLevelByte(char32_t value);

}  // namespace trivet::text
