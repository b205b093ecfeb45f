// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizer files. They are written in Oniguruma's Ruby dialect; the subset that tokenizers
// use is rewritten for PCRE2 so that both give the same matches, and everything else is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trivet::text {

/// Members of the character class that is \w in the reference library's own expressions, those that no file states.
inline constexpr std::string_view kWordMembers = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";

/// A part of a text, as byte offsets, and whether the expression matched it.
struct Span {
  size_t begin;
  size_t end;
  bool match;
};

/// A compiled expression; matching is const and thread-safe. Move-only.
class Regex {
 public:
  /// Compiles an expression of a tokenizer file.
  ///   what     the object's name for messages
  /// Errors:  kUnsupported for a construct outside the subset, kInvalid when the expression is malformed.
  static Result<Regex> Compile(std::string_view pattern, std::string_view what);
  /// Compiles the expression that matches exactly `text`.  Errors: kInvalid when it is empty.
  static Result<Regex> Literal(std::string_view text, std::string_view what);

  Regex(Regex&& other) noexcept;
  Regex& operator=(Regex&& other) noexcept;
  ~Regex();

  /// All of `text`, which is valid UTF-8, as alternating matches (leftmost first) and gaps; no gap is empty.
  /// Errors:  kCapacity when matching needs more steps or memory than the limits allow.
  Result<std::vector<Span>> Split(std::string_view text) const;

  /// The expression in PCRE2's dialect, for tests.  Errors: those of Compile.
  static Result<std::string> Translate(std::string_view pattern, std::string_view what);

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  static Result<Regex> CompileWith(std::string_view pattern, uint32_t options, std::string_view shown,
                                   std::string_view what);

  std::unique_ptr<Code> code_;
};

}  // namespace trivet::text
