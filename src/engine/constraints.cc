// SPDX-License-Identifier: Apache-2.0
#include "engine/constraints.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"
#include "grammar/json_grammar.h"
#include "grammar/pattern.h"
#include "grammar/schema.h"

namespace trivet::engine {
namespace {

constexpr size_t kKept = 32;  // constraints whose states are kept for later requests

}  // namespace

const grammar::TokenTrie& Constraints::Vocabulary() {
  std::call_once(made_vocabulary_, [this] {
    std::vector<std::string> bytes(static_cast<size_t>(tokenizer_.vocab_size()));
    for (size_t id = 0; id < bytes.size(); ++id) {
      const auto token = static_cast<TokenId>(id);
      const bool ends = std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
      if (!ends && !tokenizer_.IsSpecial(token)) bytes[id] = tokenizer_.TokenBytes(token);
    }
    vocabulary_ = std::make_unique<const grammar::TokenTrie>(std::move(bytes));
  });
  return *vocabulary_;
}

Result<ConstraintPtr> Constraints::Get(const std::string& key, const Writer& write, const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, constraint] : known_) {
      if (known == key) return constraint;
    }
  }
  grammar::GrammarBuilder builder;
  TRY_ASSIGN(const grammar::NodeId root, write(&builder));
  TRY_ASSIGN(grammar::Grammar grammar, std::move(builder).Finish(root, what));
  TRY_ASSIGN(ConstraintPtr made, grammar::Constraint::Make(std::move(grammar), &Vocabulary(), what));
  const std::lock_guard lock(mutex_);
  known_.emplace_back(key, made);
  if (known_.size() > kKept) known_.pop_front();
  return made;
}

Result<ConstraintPtr> Constraints::JsonObject() {
  const Writer write = [](grammar::GrammarBuilder* builder) -> Result<grammar::NodeId> {
    return grammar::JsonGrammar(builder).AnyObject();
  };
  return Get("object", write, "JSON");
}

Result<ConstraintPtr> Constraints::Schema(const Json& schema, const std::string& what) {
  const Writer write = [&](grammar::GrammarBuilder* builder) {
    return grammar::SchemaReader(&schema, what, builder).Read();
  };
  return Get("schema " + DumpJson(schema), write, what);
}

Result<ConstraintPtr> Constraints::Pattern(const std::string& pattern, const std::string& what) {
  const Writer write = [&](grammar::GrammarBuilder* builder) {
    const grammar::PatternOptions options{
        true, [builder](const grammar::CharSet& set) { return grammar::Utf8(set, builder); }};
    return grammar::ReadPattern(pattern, options, builder, what);
  };
  return Get("pattern " + pattern, write, what);
}

Result<ConstraintPtr> Constraints::Choice(const std::vector<std::string>& texts, const std::string& what) {
  const auto bad = [](const std::string& text) { return text.empty() || !IsUtf8(text); };
  if (texts.empty() || std::any_of(texts.begin(), texts.end(), bad)) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected at least one text, none of them empty, found {}; correct the list", what,
                                 Quote(DumpJson(Json(texts)), 80)));
  }
  const Writer write = [&](grammar::GrammarBuilder* builder) -> Result<grammar::NodeId> {
    return builder->Literals(texts);
  };
  return Get("choice " + DumpJson(Json(texts)), write, what);
}

}  // namespace trivet::engine
