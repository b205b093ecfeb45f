// SPDX-License-Identifier: Apache-2.0
#include "text/post_processor.h"

#include <fmt/format.h>

#include <string>

#include "base/str.h"
#include "text/component.h"

namespace trivet::text {
namespace {

Error BadTemplate(std::string_view what, std::string_view expected, const Json& found) {
  return MakeError(Code::kInvalid, fmt::format("{}: TemplateProcessing: expected {}, found {}; correct the file", what,
                                               expected, Quote(DumpJson(found))));
}

// Appends the ids that "special_tokens" gives for one SpecialToken part.
Status AppendSpecial(const Json* special_tokens, const Json& part, int64_t vocab_size, std::string_view what,
                     std::vector<TokenId>* out) {
  TRY_ASSIGN(const std::string name, NeedString(part, "id", what));
  const Json* entry = special_tokens == nullptr ? nullptr : Find(*special_tokens, name);
  const Json* ids = entry == nullptr ? nullptr : Find(*entry, "ids");
  if (ids == nullptr || !ids->is_array()) return BadTemplate(what, "every special token with its ids", part);
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      return BadTemplate(what, "ids of the vocabulary", *ids);
    }
    out->push_back(id.get<TokenId>());
  }
  return {};
}

}  // namespace

Result<PostProcessor> PostProcessor::FromJson(const Json& json, int64_t vocab_size, std::string_view what) {
  const std::string name = std::string(what) + ": post_processor";
  TRY_ASSIGN(const std::vector<Component> components, ListComponents(json, "processors", name));
  PostProcessor processor;
  int templates = 0;
  for (const Component& component : components) {
    if (component.type == "ByteLevel") continue;  // concerns offsets only
    if (component.type != "TemplateProcessing") return UnknownComponent(component.type, name);
    if (++templates > 1) return UnknownComponent("a second TemplateProcessing", name);
    TRY(processor.ReadTemplate(*component.json, vocab_size, name));
  }
  return processor;
}

Status PostProcessor::ReadTemplate(const Json& json, int64_t vocab_size, std::string_view what) {
  const Json* parts = Find(json, "single");
  const Json* special_tokens = Find(json, "special_tokens");
  if (parts == nullptr || !parts->is_array()) return BadTemplate(what, "an array \"single\"", json);
  bool text_seen = false;
  for (const Json& part : *parts) {
    if (const Json* special = Find(part, "SpecialToken"); special != nullptr) {
      TRY(AppendSpecial(special_tokens, *special, vocab_size, what, text_seen ? &after_ : &before_));
      continue;
    }
    const Json* sequence = Find(part, "Sequence");
    const Json* id = sequence == nullptr ? nullptr : Find(*sequence, "id");
    if (id == nullptr || *id != "A" || text_seen) return BadTemplate(what, "special tokens and one sequence A", *parts);
    text_seen = true;
  }
  if (!text_seen) return BadTemplate(what, "one sequence A", *parts);
  return {};
}

}  // namespace trivet::text
