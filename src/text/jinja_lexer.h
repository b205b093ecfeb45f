// SPDX-License-Identifier: Apache-2.0
// Template source as tokens, under the settings that chat templates are written for: trim_blocks, lstrip_blocks, and
// one trailing newline of the source removed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace trivet::text::jinja {

/// What kind of token it is.
enum class TokenKind {
  kData,  // text that is copied
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

/// One token of the source.
struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a string: its value
  int64_t integer = 0;
  double number = 0;
  int line = 1;
};

/// The longest template source.  Units: bytes.
inline constexpr int64_t kMaxSource = 4 << 20;

/// Tokens of `source`, ended by one kEnd.
/// Errors:  kInvalid for invalid UTF-8, an unclosed tag or string, unbalanced brackets, a malformed literal or a source
///          longer than kMaxSource.
Result<std::vector<Token>> Lex(std::string_view source);

/// A place in a token list.
class TokenStream {
 public:
  /// `tokens` ends with kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// The current token, or one after it; past the end, the last.
  const Token& Peek(size_t ahead = 0) const;
  /// The current token, which is moved past unless it is the last.
  Token Next();
  /// Whether the token is this operator (name).
  bool AtOperator(std::string_view op) const;
  bool AtName(std::string_view name, size_t ahead = 0) const;
  /// Moves past the token if it is this operator (name).
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  Status ExpectOperator(std::string_view op);
  Status Expect(TokenKind kind);
  Result<std::string> ExpectName();
  /// A syntax error at the current token: what was expected there.
  Error Unexpected(std::string_view expected) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

/// The error of a template source at a line.
Error SyntaxError(int line, std::string_view what);

}  // namespace trivet::text::jinja
