// SPDX-License-Identifier: Apache-2.0
// Tokenizer and chat template in the metadata of a GGUF file, brought into the forms that model directories have, so
// that everything behind reads one form.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace trivet::text {

/// The tokenizer as a tokenizer.json document for Tokenizer::FromJson. "llama" is SentencePiece's BPE, whose scores
/// decide the merges; "gpt2" is byte-level BPE with merges and a way to split named by tokenizer.ggml.pre. Control and
/// unknown tokens become special added tokens, user-defined ones plain added tokens.
///   metadata   keys and values as checkpoint::GgufHeader has them
///   what       the file's name for messages
/// Errors:      kUnsupported names a model, a way to split or an option that is not supported; kInvalid the key that
///              is missing, or its defect.
Result<Json> GgufTokenizerJson(const Json& metadata, std::string_view what);

/// The special tokens by the names that templates use (bos_token, eos_token, ...), as text.
/// Errors:  kInvalid for an id outside the vocabulary.
Result<Json> GgufSpecialTokens(const Json& metadata, std::string_view what);

/// The source of the chat template, or nothing; with `with_tools` the one named "tool_use" where there is one.
/// Errors:  kInvalid when it is no text.
Result<std::optional<std::string>> GgufChatTemplate(const Json& metadata, bool with_tools, std::string_view what);

}  // namespace trivet::text
