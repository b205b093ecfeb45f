// SPDX-License-Identifier: Apache-2.0
#include "engine/prompts.h"

#include <fmt/format.h>

namespace trivet::engine {

Result<Prompts> Prompts::Open(const std::string& dir) {
  TRY_ASSIGN(text::Tokenizer tokenizer, text::Tokenizer::Open(dir));
  Prompts prompts(std::move(tokenizer));
  TRY_ASSIGN(prompts.special_tokens_, text::SpecialTokens(dir));
  for (const bool with_tools : {false, true}) {
    TRY_ASSIGN(std::optional<std::string> source, text::LoadChatTemplate(dir, with_tools));
    if (!source) continue;
    TRY_ASSIGN(text::ChatTemplate parsed, text::ChatTemplate::Parse(std::move(*source)));
    (with_tools ? prompts.tools_template_ : prompts.template_) = std::move(parsed);
  }
  return prompts;
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
  return chosen->Render(context);
}

Result<std::vector<TokenId>> Prompts::EncodeChat(const Json& request) const {
  TRY_ASSIGN(const std::string rendered, Render(request));
  return tokenizer_.Encode(rendered, {.add_special_tokens = false, .parse_special = true});
}

Result<std::vector<TokenId>> Prompts::EncodeText(const std::string& text) const {
  return tokenizer_.Encode(text, {.add_special_tokens = true, .parse_special = true});
}

}  // namespace trivet::engine
