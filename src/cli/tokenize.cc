// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/options.h"
#include "engine/prompts.h"

namespace trivet::cli {
namespace {

struct TokenizeFlags {
  std::string model, texts, decode, chats, text;
  bool no_special = false, skip_special = false;
};

Error WrongEntry(const std::string& file, size_t index, const char* expected) {
  return MakeError(Code::kInvalid, fmt::format("{}: expected {} at entry {}, found something else; correct the file",
                                               file, expected, index));
}

// Reads a list from a JSON file and turns each entry into another.
template <class Turn>
Result<Json> MapFile(const std::string& file, const char* expected, const Turn& turn) {
  TRY_ASSIGN(const Json list, ReadJsonFile(file));
  if (!list.is_array()) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected a JSON list, found {}; correct the file", file, list.type_name()));
  }
  Json out = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    Result<std::optional<Json>> entry = turn(list[i]);
    if (!entry.ok()) {
      return MakeError(entry.error().code, fmt::format("{}, entry {}: {}", file, i, entry.error().message));
    }
    if (!entry->has_value()) return WrongEntry(file, i, expected);
    out.push_back(std::move(**entry));
  }
  return out;
}

Result<Json> Texts(const TokenizeFlags& flags, const text::Tokenizer& tokenizer) {
  return MapFile(flags.texts, "a string", [&](const Json& entry) -> Result<std::optional<Json>> {
    if (!entry.is_string()) return std::optional<Json>();
    TRY_ASSIGN(const std::vector<TokenId> ids,
               tokenizer.Encode(entry.get<std::string>(), {.add_special_tokens = !flags.no_special}));
    return std::optional<Json>(ids);
  });
}

Result<Json> Decode(const TokenizeFlags& flags, const text::Tokenizer& tokenizer) {
  return MapFile(flags.decode, "a list of token ids", [&](const Json& entry) -> Result<std::optional<Json>> {
    if (!entry.is_array()) return std::optional<Json>();
    std::vector<TokenId> ids;
    for (const Json& id : entry) {
      if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab_size()) return std::optional<Json>();
      ids.push_back(id.get<TokenId>());
    }
    return std::optional<Json>(tokenizer.Decode(ids, flags.skip_special));
  });
}

Result<Json> Chats(const TokenizeFlags& flags, const engine::Prompts& prompts) {
  return MapFile(flags.chats, "an object with messages", [&](const Json& entry) -> Result<std::optional<Json>> {
    if (!entry.is_object()) return std::optional<Json>();
    TRY_ASSIGN(const std::string rendered, prompts.Render(entry));
    return std::optional<Json>(rendered);
  });
}

Status Execute(const TokenizeFlags& flags) {
  const int given = !flags.texts.empty() + !flags.decode.empty() + !flags.chats.empty() + !flags.text.empty();
  if (given != 1) {
    return MakeError(Code::kUsage,
                     fmt::format("tokenize: expected one of --text, --texts, --decode and --chats, found {}; "
                                 "give one",
                                 given));
  }
  TRY_ASSIGN(const std::string dir, ModelDir(flags.model));
  TRY_ASSIGN(const engine::Prompts prompts, engine::Prompts::Open(dir));
  Result<Json> out = Json();
  if (!flags.text.empty()) {
    TRY_ASSIGN(const std::vector<TokenId> ids,
               prompts.tokenizer().Encode(flags.text, {.add_special_tokens = !flags.no_special}));
    out = Json(ids);
  } else if (!flags.texts.empty()) {
    out = Texts(flags, prompts.tokenizer());
  } else if (!flags.decode.empty()) {
    out = Decode(flags, prompts.tokenizer());
  } else {
    out = Chats(flags, prompts);
  }
  if (!out.ok()) return out.error();
  std::puts(DumpJson(*out).c_str());
  return {};
}

}  // namespace

Run AddTokenize(CLI::App* app) {
  auto flags = std::make_shared<TokenizeFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option("MODEL", flags->model, "directory with tokenizer.json, GGUF file, or \"demo\"")->required();
  app->add_option("--text", flags->text, "text to encode");
  app->add_option("--texts", flags->texts, "JSON file: a list of texts to encode");
  app->add_option("--decode", flags->decode, "JSON file: a list of lists of token ids to decode");
  app->add_option("--chats", flags->chats,
                  "JSON file: a list of objects with messages, tools, add_generation_prompt and kwargs to render");
  app->add_flag("--no-special", flags->no_special, "encode without added tokens such as BOS");
  app->add_flag("--skip-special", flags->skip_special, "decode without special tokens");
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
