// SPDX-License-Identifier: Apache-2.0
#include "engine/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "text/gguf_tokenizer.h"

namespace trivet::engine {
namespace {

bool BeginsWith(std::span<const TokenId> ids, std::span<const TokenId> begin) {
  return ids.size() >= begin.size() && std::equal(begin.begin(), begin.end(), ids.begin());
}

}  // namespace

Result<Prompts> Prompts::Open(const std::string& path) {
  if (!checkpoint::IsGguf(path)) return OpenDir(path);
  TRY_ASSIGN(const checkpoint::GgufFile file, checkpoint::OpenGguf(path));
  return FromGguf(file.header.metadata, path);
}

Result<Prompts> Prompts::Open(const std::string& path, const checkpoint::Checkpoint& model) {
  return checkpoint::IsGguf(path) ? FromGguf(model.metadata(), path) : OpenDir(path);
}

Result<Prompts> Prompts::OpenDir(const std::string& dir) {
  TRY_ASSIGN(text::Tokenizer tokenizer, text::Tokenizer::Open(dir));
  Prompts prompts(std::move(tokenizer));
  TRY_ASSIGN(prompts.special_tokens_, text::SpecialTokens(dir));
  TRY(prompts.ReadTemplates([&](bool with_tools) { return text::LoadChatTemplate(dir, with_tools); }));
  return prompts;
}

Result<Prompts> Prompts::FromGguf(const Json& metadata, const std::string& path) {
  TRY_ASSIGN(const Json tokenizer_json, text::GgufTokenizerJson(metadata, path));
  TRY_ASSIGN(text::Tokenizer tokenizer, text::Tokenizer::FromJson(tokenizer_json, Json(), path));
  Prompts prompts(std::move(tokenizer));
  prompts.begins_chats_ = true;
  TRY_ASSIGN(prompts.special_tokens_, text::GgufSpecialTokens(metadata, path));
  TRY(prompts.ReadTemplates([&](bool with_tools) { return text::GgufChatTemplate(metadata, with_tools, path); }));
  return prompts;
}

// Parses the templates whose sources `source_of` gives for conversations without and with tools.
template <class Source>
Status Prompts::ReadTemplates(const Source& source_of) {
  for (const bool with_tools : {false, true}) {
    TRY_ASSIGN(std::optional<std::string> source, source_of(with_tools));
    if (!source) continue;
    TRY_ASSIGN(text::ChatTemplate parsed, text::ChatTemplate::Parse(std::move(*source)));
    (with_tools ? tools_template_ : template_) = std::move(parsed);
  }
  return {};
}

Result<std::string> Prompts::Render(const Json& request) const {
  const Json* tools = Find(request, "tools");
  const bool with_tools = tools != nullptr && tools->is_array() && !tools->empty();
  const std::optional<text::ChatTemplate>& chosen = with_tools ? tools_template_ : template_;
  if (!chosen) {
    return MakeError(Code::kUnsupported,
                     "chat: expected a chat template beside the tokenizer, found none; pass plain "
                     "text with --raw");
  }
  const Json* messages = Find(request, "messages");
  if (messages == nullptr || !messages->is_array()) {
    return MakeError(Code::kInvalid,
                     "chat: expected a list \"messages\", found none; give "
                     "[{\"role\": ..., \"content\": ...}]");
  }
  Json context = special_tokens_;
  context["messages"] = text::NormalizeMessages(*messages);
  context["tools"] = with_tools ? *tools : Json();
  context["documents"] = Json();
  TRY_ASSIGN(context["add_generation_prompt"], GetBool(request, "add_generation_prompt", true, "chat"));
  if (const Json* kwargs = Find(request, "kwargs"); kwargs != nullptr && kwargs->is_object()) {
    for (const auto& [key, value] : kwargs->items()) context[key] = value;
  }
  // Most templates want the arguments of earlier function calls as objects, some only join them to other text: those
  // fail on objects and get the text that a caller gave.
  Result<std::string> rendered = chosen->Render(context);
  if (rendered.ok() || context["messages"] == *messages) return rendered;
  context["messages"] = *messages;
  Result<std::string> as_given = chosen->Render(context);
  return as_given.ok() ? std::move(as_given) : std::move(rendered);
}

Result<std::vector<TokenId>> Prompts::EncodeChat(const Json& request) const {
  TRY_ASSIGN(const std::string rendered, Render(request));
  TRY_ASSIGN(std::vector<TokenId> ids, tokenizer_.Encode(rendered, {.add_special_tokens = false}));
  const std::vector<TokenId>& before = tokenizer_.before();
  if (begins_chats_ && !BeginsWith(ids, before)) ids.insert(ids.begin(), before.begin(), before.end());
  return ids;
}

Result<std::vector<TokenId>> Prompts::EncodeText(const std::string& text) const {
  TRY_ASSIGN(std::vector<TokenId> ids, tokenizer_.Encode(text, {.add_special_tokens = true}));
  const std::vector<TokenId>& before = tokenizer_.before();
  const auto length = static_cast<std::ptrdiff_t>(before.size());
  if (BeginsWith(std::span(ids).subspan(before.size()), before)) ids.erase(ids.begin(), ids.begin() + length);
  return ids;
}

Status CheckTokens(std::span<const TokenId> prompt, int64_t vocab) {
  for (const TokenId token : prompt) {
    if (token >= 0 && token < vocab) continue;
    return MakeError(Code::kInvalid, fmt::format("prompt: expected token ids from 0 to {}, found {}; use this model's "
                                                 "tokenizer",
                                                 vocab - 1, token));
  }
  return {};
}

}  // namespace trivet::engine
