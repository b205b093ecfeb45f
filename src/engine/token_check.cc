// SPDX-License-Identifier: Apache-2.0
#include "engine/token_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/str.h"

namespace trivet::engine {
namespace {

// What one place says a token's id is; end tokens may be several.
struct Statement {
  const char* place;
  std::vector<int64_t> ids;
};

// The ids under `key`, a number or a list; ill-typed ones are found when the file is read.
std::vector<int64_t> IdsOf(const Json& config, const std::string& key) {
  std::vector<int64_t> ids;
  const Json* stated = Find(config, key);
  if (stated == nullptr) return ids;
  for (const Json& id : stated->is_array() ? *stated : Json::array({*stated})) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

bool Contains(const std::vector<int64_t>& ids, int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool ShareOne(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return std::any_of(a.begin(), a.end(), [&](int64_t id) { return Contains(b, id); });
}

std::string Listed(const std::vector<int64_t>& ids) { return fmt::format("{}", fmt::join(ids, ", ")); }

void CheckKey(const checkpoint::ModelFiles& files, const Prompts& prompts, const std::string& name,
              std::vector<std::string>* defects) {
  const text::Tokenizer& tokenizer = prompts.tokenizer();
  const std::string key = name + "_token_id";
  std::vector<Statement> statements = {{"config.json", IdsOf(files.text_config, key)},
                                       {"generation_config.json", IdsOf(files.generation_config, key)}};
  if (name == "eos") {
    for (Statement& statement : statements) {
      std::erase_if(statement.ids, [&](int64_t id) { return !Contains(files.stop_tokens, id); });
    }
  }
  for (const Statement& statement : statements) {
    for (const int64_t id : statement.ids) {
      if (id >= 0 && id < tokenizer.vocab_size() && !tokenizer.TokenText(static_cast<TokenId>(id)).empty()) continue;
      defects->push_back(
          fmt::format("{}: \"{}\": expected an id of the tokenizer, from 0 to {}, found {}; correct "
                      "the file",
                      statement.place, key, tokenizer.vocab_size() - 1, id));
    }
  }
  if (const Json* text = Find(prompts.special_tokens(), name + "_token"); text != nullptr && text->is_string()) {
    const auto& content = text->get_ref<const std::string&>();
    if (const std::optional<TokenId> id = tokenizer.IdOf(content); id.has_value()) {
      statements.push_back({"the tokenizer", {*id}});
    } else {
      defects->push_back(
          fmt::format("tokenizer: \"{}_token\": expected a token of the vocabulary, found \"{}\"; "
                      "correct tokenizer_config.json",
                      name, Quote(content)));
    }
  }
  std::erase_if(statements, [](const Statement& statement) { return statement.ids.empty(); });
  for (size_t i = 1; i < statements.size(); ++i) {
    if (ShareOne(statements[0].ids, statements[i].ids)) continue;
    defects->push_back(fmt::format("\"{}\": expected one token everywhere, found {} in {} and {} in {}; correct one",
                                   key, Listed(statements[0].ids), statements[0].place, Listed(statements[i].ids),
                                   statements[i].place));
  }
}

}  // namespace

std::vector<std::string> TokenDefects(const checkpoint::ModelFiles& files, const Prompts& prompts, int64_t vocab) {
  std::vector<std::string> defects;
  const int64_t tokens = prompts.tokenizer().vocab_size();
  if (vocab > 0 && tokens > vocab) {
    defects.push_back(
        fmt::format("tokenizer: expected at most {} ids, as many as the model has, found {}; the "
                    "tokenizer belongs to another model",
                    vocab, tokens));
  }
  for (const char* name : {"bos", "eos", "pad"}) CheckKey(files, prompts, name, &defects);
  return defects;
}

}  // namespace trivet::engine
