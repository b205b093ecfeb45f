// SPDX-License-Identifier: Apache-2.0
// The text side of a model: its tokenizer, its chat template, and the way from a conversation to token ids.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace trivet::checkpoint {
class Checkpoint;
}

namespace trivet::engine {

/// Tokenizer and chat template of one model.
class Prompts {
 public:
  /// Reads those of a directory, or of a GGUF file's metadata.
  /// Errors:  those of the files, of the tokenizer and of the template's syntax.
  static Result<Prompts> Open(const std::string& path);
  /// The same beside the model that was opened from `path`: a GGUF file's header is not read again.
  static Result<Prompts> Open(const std::string& path, const checkpoint::Checkpoint& model);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  /// Texts of the special tokens by name (bos_token, ...), as the template gets them.
  const Json& special_tokens() const { return special_tokens_; }
  bool has_template() const { return template_.has_value(); }

  /// The conversation as text, by the chat template.
  ///   request  an object with "messages", and optionally "tools", "add_generation_prompt" (default true) and "kwargs"
  /// Errors:  kUnsupported when the model has no template; kInvalid with the template's own message.
  Result<std::string> Render(const Json& request) const;

  /// Token ids of a rendered conversation. A directory's template has written every special token, so none is added; of
  /// a GGUF file the tokens that begin its texts are added where the template has not written them.
  Result<std::vector<TokenId>> EncodeChat(const Json& request) const;

  /// Token ids of plain text, with what the tokenizer adds around it, once: a text that begins with it keeps its own.
  Result<std::vector<TokenId>> EncodeText(const std::string& text) const;

 private:
  explicit Prompts(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  static Result<Prompts> FromGguf(const Json& metadata, const std::string& path);
  static Result<Prompts> OpenDir(const std::string& dir);
  template <class Source>
  Status ReadTemplates(const Source& source_of);

  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> template_, tools_template_;
  Json special_tokens_;
  bool begins_chats_ = false;  // conversations begin with what texts begin with
};

/// Whether a model with a vocabulary of that size knows all tokens of a prompt.  Errors: kInvalid naming the first that
/// it does not know.
Status CheckTokens(std::span<const TokenId> prompt, int64_t vocab);

}  // namespace trivet::engine
