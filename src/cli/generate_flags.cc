// SPDX-License-Identifier: Apache-2.0
#include "cli/generate_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/str.h"
#include "engine/request_options.h"

namespace trivet::cli {
namespace {

// One chat request around a user turn.
Json OneTurn(const GenerateFlags& flags, const std::string& text) {
  Json messages = Json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  return {{"messages", messages}};
}

// A line's conversation, begun by the flag's system message where it has none of its own.
Result<std::vector<TokenId>> EncodeMessages(const GenerateFlags& flags, const engine::Prompts& prompts, Json line) {
  if (flags.raw) {
    return MakeError(Code::kUsage,
                     "--raw: expected lines with \"prompt\" or \"token_ids\", found \"messages\", which take the chat "
                     "template; leave one out");
  }
  Json& messages = line["messages"];
  const bool begun = !messages.empty() && Find(messages[0], "role") != nullptr && messages[0]["role"] == "system";
  if (!flags.system.empty() && !begun) {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", flags.system}});
  }
  return prompts.EncodeChat(line);
}

// Member `key` of a line, or null where it is absent or null.
const Json* Given(const Json& line, std::string_view key) {
  const Json* found = Find(line, key);
  return found != nullptr && found->is_null() ? nullptr : found;
}

// A key that nobody reads is a mistake in writing it.
Status CheckKeys(const Json& line) {
  if (!line.is_object()) return {};  // EncodeLine's to refuse
  std::vector<std::string_view> known = {"prompt", "messages", "token_ids"};
  if (Given(line, "messages") != nullptr) {  // what the template gets besides
    known.insert(known.end(), {"tools", "add_generation_prompt", "kwargs"});
  }
  known.insert(known.end(), engine::RequestKeys().begin(), engine::RequestKeys().end());
  for (const auto& [key, value] : line.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return MakeError(Code::kInvalid,
                     fmt::format("\"{}\": expected no other keys than {}, found one that nothing reads; "
                                 "correct it or leave it out",
                                 Quote(key), fmt::join(known, ", ")));
  }
  return {};
}

Result<std::vector<TokenId>> EncodeLine(const GenerateFlags& flags, const engine::Prompts& prompts, const Json& line) {
  TRY(CheckKeys(line));
  const Json *messages = Given(line, "messages"), *prompt = Given(line, "prompt"), *ids = Given(line, "token_ids");
  if ((messages != nullptr) + (prompt != nullptr) + (ids != nullptr) > 1) {
    return MakeError(Code::kInvalid,
                     "expected one of \"prompt\", \"messages\" and \"token_ids\", found more; correct the line");
  }
  if (messages != nullptr) {
    if (messages->is_array()) return EncodeMessages(flags, prompts, line);
  } else if (prompt != nullptr) {
    if (prompt->is_string()) return EncodePrompt(flags, prompts, prompt->get<std::string>());
  } else if (ids != nullptr) {
    bool integers = ids->is_array();
    std::vector<TokenId> tokens;
    for (const Json& id : *ids) {
      integers = integers && id.is_number_integer() && id >= 0 && id <= INT32_MAX;
      if (integers) tokens.push_back(id.get<TokenId>());
    }
    if (integers) return tokens;
  }
  return MakeError(Code::kInvalid, fmt::format("expected an object with \"prompt\" (text), \"messages\" (a list) or "
                                               "\"token_ids\" (integers), found {}; correct the line",
                                               Quote(DumpJson(line), 80)));
}

}  // namespace

void GenerateFlags::Add(CLI::App* app) {
  engine.sizes.prefix_cache = "on";
  engine.Add(app);
  proof.Add(app, ",--out");
  engine.AddRoutes(app);
  app->add_option("--prompt,-p", prompt,
                  "one user turn, through the chat template where the model has one; standard input when absent. "
                  "Several go into a file for --prompts");
  app->add_flag("--raw", raw, "continue the text itself, without the chat template");
  app->add_flag("--chat", chat, "interactive conversation with history; /reset forgets it, /exit ends");
  app->add_option("--system", system, "system message before the user's");
  app->add_option(
      "--prompts", prompts,
      "JSON lines with \"prompt\", \"messages\" or \"token_ids\", run as one batch; answers come as they end. A line's "
      "own temperature, top_k, top_p, min_p, penalties, seed, stop, max_tokens, ignore_eos, priority and logprobs win "
      "over flags; messages may have tools, kwargs and add_generation_prompt beside them; other keys are refused");
  app->add_option("--json-schema", json_schema,
                  "file with a JSON schema that every answer is held to; docs/server.md lists the keywords");
  app->add_flag("--json", json, "one JSON line per answer");
  app->add_option("--max-tokens", max_tokens, "tokens to generate at most; 0 is up to the context");
  app->add_option("--temperature", temperature,
                  "0 takes the likeliest token; the model's generation_config.json decides when absent");
  app->add_option("--top-k", top_k, "sample among the k likeliest; 0 is off");
  app->add_option("--top-p", top_p, "sample among the likeliest whose mass reaches p, above 0 and at most 1");
  app->add_option("--min-p", min_p, "drop tokens below p times the likeliest, 0 to 1");
  app->add_option("--repetition-penalty", repetition_penalty,
                  "above 1 discourages tokens of prompt and answer, 0.01 to 100");
  app->add_option("--frequency-penalty", frequency_penalty, "subtracted per occurrence in the answer, -2 to 2");
  app->add_option("--presence-penalty", presence_penalty, "subtracted once per token of the answer, -2 to 2");
  app->add_option("--seed", seed, "seed of the random numbers: an integer from -2^63 to 2^64 - 1")->type_name("SEED");
  RefuseEmpty(app->add_option("--stop", stop, "text that ends the answer; may be repeated")->take_all());
  app->add_flag("--ignore-eos", ignore_eos, "go on after end tokens");
  app->add_option("--logprobs", logprobs, "also log-probabilities, with this many alternatives, 0 to 100");
  app->add_flag("--show-plan", show_plan, "print the layout table first");
  CLI::Option* compare = app->add_option("--compare-ranks", compare_ranks,
                                         "afterwards compare all logits with those of this many ranks; 0: no");
  CLI::Option* chats = app->get_option("--chat");
  CLI::Option* file = app->get_option("--prompts");
  chats->excludes(app->get_option("--prompt"), file, app->get_option("--raw"), compare);
  file->excludes(app->get_option("--prompt"), compare);
  app->get_option("--raw")->excludes(app->get_option("--system"));
}

Result<engine::GenerationRequest> BaseRequest(const GenerateFlags& flags, const Json& generation_config) {
  engine::GenerationRequest request;
  sampling::SamplingParams& params = request.sampling;
  TRY_ASSIGN(params, engine::DefaultSampling(generation_config));
  params.temperature = flags.temperature.value_or(params.temperature);
  params.top_k = flags.top_k.value_or(params.top_k);
  params.top_p = flags.top_p.value_or(params.top_p);
  params.min_p = flags.min_p.value_or(params.min_p);
  params.repetition_penalty = flags.repetition_penalty.value_or(params.repetition_penalty);
  params.frequency_penalty = flags.frequency_penalty.value_or(params.frequency_penalty);
  params.presence_penalty = flags.presence_penalty.value_or(params.presence_penalty);
  TRY_ASSIGN(params.seed, engine::ParseSeed(flags.seed, "--seed"));
  request.logprobs = flags.logprobs.has_value();
  const int64_t logprobs = flags.logprobs.value_or(0);
  if (logprobs < 0 || logprobs > engine::kMaxLogprobs) {
    return MakeError(Code::kUsage, fmt::format("--logprobs: expected 0 to {}, found {}; choose a value in that range",
                                               engine::kMaxLogprobs, logprobs));
  }
  params.logprobs = static_cast<int>(logprobs);
  if (flags.max_tokens < 0) {
    return MakeError(
        Code::kUsage,
        fmt::format("--max-tokens: expected 0 or more, found {}; choose a value in that range", flags.max_tokens));
  }
  if (flags.max_tokens > 0) request.max_tokens = flags.max_tokens;
  request.stop = flags.stop;
  request.ignore_eos = flags.ignore_eos;
  if (const Status valid = sampling::Validate(params); !valid.ok()) {
    std::string key = valid.error().message;  // "top_p: ...", a flag's, since the model's own have been looked at
    std::replace(key.begin(), std::find(key.begin(), key.end(), ':'), '_', '-');
    return MakeError(Code::kUsage, "--" + key);
  }
  if (flags.compare_ranks < 0 || flags.compare_ranks > plan::kMaxRanks) {
    return MakeError(Code::kUsage,
                     fmt::format("--compare-ranks: expected 1 to {}, found {}; choose a count in that range",
                                 plan::kMaxRanks, flags.compare_ranks));
  }
  return request;
}

Result<std::vector<TokenId>> EncodePrompt(const GenerateFlags& flags, const engine::Prompts& prompts,
                                          const std::string& text) {
  if (!IsUtf8(text)) {
    return MakeError(Code::kInvalid, "prompt: expected UTF-8, found other bytes; convert the text");
  }
  if (!flags.system.empty() && !prompts.has_template()) {
    return MakeError(Code::kUnsupported,
                     "--system: expected a model with a chat template, found none; put the text into the prompt");
  }
  Result<std::vector<TokenId>> ids =
      flags.raw || !prompts.has_template() ? prompts.EncodeText(text) : prompts.EncodeChat(OneTurn(flags, text));
  if (ids.ok() && ids->empty()) {
    return MakeError(Code::kInvalid, "prompt: expected at least one token, found none; give some text");
  }
  return ids;
}

Result<std::vector<engine::GenerationRequest>> ReadPromptFile(const GenerateFlags& flags,
                                                              const engine::Prompts& prompts, int64_t vocab,
                                                              const engine::GenerationRequest& base) {
  TRY_ASSIGN(const std::string text, ReadTextFile(flags.prompts, int64_t{1} << 30));
  std::vector<engine::GenerationRequest> all;
  const std::vector<std::string> lines = Split(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}, line {}", flags.prompts, i + 1);
    TRY_ASSIGN(Json parsed, ParseJson(lines[i], where));
    const Json line = engine::WithIntegers(std::move(parsed));
    Result<std::vector<TokenId>> ids = EncodeLine(flags, prompts, line);
    if (!ids.ok()) return MakeError(ids.error().code, where + ": " + ids.error().message);
    if (const Status known = engine::CheckTokens(*ids, vocab); !known.ok()) {
      return MakeError(known.error().code, where + ": " + known.error().message);
    }
    engine::GenerationRequest request = base;
    TRY(engine::ReadRequest(line, where, &request));
    request.prompt = std::move(ids).value();
    all.push_back(std::move(request));
  }
  if (all.empty()) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected at least one line, found none; add a prompt", flags.prompts));
  }
  return all;
}

}  // namespace trivet::cli
