// SPDX-License-Identifier: Apache-2.0
// Chat templates: the Jinja programs that come with a model and turn a conversation into its prompt. They are
// untrusted: a rendering is bounded in time, memory and output, and reaches nothing outside its context but the clock.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace trivet::text {

/// A parsed template. Rendering is const and may run in several threads.
class ChatTemplate {
 public:
  /// Errors:  kInvalid for a malformed template, kUnsupported for statements that chat templates do not have.
  static Result<ChatTemplate> Parse(std::string source);

  ChatTemplate(ChatTemplate&& other) noexcept;
  ChatTemplate& operator=(ChatTemplate&& other) noexcept;
  ~ChatTemplate();

  /// The prompt.
  ///   context  an object of variables: messages, tools, documents, add_generation_prompt, bos_token and the other
  ///            special tokens, and what the request adds
  /// Errors:    kInvalid for a conversation that the template refuses (raise_exception gives its message), and for
  ///            errors and exceeded limits of the template itself.
  Result<std::string> Render(const Json& context) const;

 private:
  struct Tree;
  explicit ChatTemplate(std::unique_ptr<const Tree> tree);

  std::unique_ptr<const Tree> tree_;
};

/// The source of the template that the model in `dir` has: chat_template.jinja, else the member chat_template of
/// tokenizer_config.json, a string or a list of named ones, of which `with_tools` chooses "tool_use" when there is one.
/// Nothing when there is neither.
/// Errors:  kInvalid for a malformed file, kIo.
Result<std::optional<std::string>> LoadChatTemplate(const std::string& dir, bool with_tools);

/// The special tokens in tokenizer_config.json by name (bos_token, eos_token, ...), as strings; those that are null are
/// left out. An empty object when there is no such file.
/// Errors:  kInvalid for a malformed file, kIo.
Result<Json> SpecialTokens(const std::string& dir);

/// `messages` with the arguments of function calls as objects, which most templates expect, where they are strings of
/// JSON objects. Everything else is left as it is.
Json NormalizeMessages(const Json& messages);

}  // namespace trivet::text
