// SPDX-License-Identifier: Apache-2.0
#include "server/api_request.h"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <utility>

#include "base/str.h"
#include "engine/forced_calls.h"
#include "engine/request_options.h"
#include "server/answer_form.h"
#include "server/messages.h"

namespace trivet::server {
namespace {

// Fields that would change the answer and that this server does not have, with the value that changes nothing.
// Whatever is unknown and not here is ignored, since clients send much.
struct Refused {
  const char* key;
  std::vector<Json> neutral;  // values that change nothing; null always is one
};
std::vector<Refused> RefusedFields(bool chat) {
  const Json none = Json::array();
  std::vector<Refused> fields =
      chat ? std::vector<Refused>{{"prompt", {"", none}}, {"echo", {false}}, {"best_of", {1}}}
           : std::vector<Refused>{
                 {"messages", {none}}, {"tools", {none}}, {"top_logprobs", {0}}, {"max_completion_tokens", {}}};
  const std::vector<Refused> both = {{"continue_final_message", {false}},
                                     {"use_beam_search", {false}},
                                     {"bad_words", {none}},
                                     {"allowed_token_ids", {none}},
                                     {"suffix", {""}},
                                     {"modalities", {none, Json::array({"text"})}},
                                     {"prompt_logprobs", {false}},
                                     {"truncate_prompt_tokens", {-1}},
                                     {"functions", {none}},
                                     {"function_call", {"none", "auto"}},
                                     {"audio", {}},
                                     {"web_search_options", {}},
                                     {"guided_grammar", {}}};
  fields.insert(fields.end(), both.begin(), both.end());
  return fields;
}

constexpr int64_t kCompletionTokens = 16;  // where a completion does not say, as OpenAI has it

bool Given(const Json& body, std::string_view key) {
  const Json* found = Find(body, key);
  return found != nullptr && !found->is_null();
}

ApiStatus CheckSupported(const Json& body, bool chat) {
  for (const auto& [key, neutral] : RefusedFields(chat)) {
    if (!Given(body, key) || std::find(neutral.begin(), neutral.end(), body[key]) != neutral.end()) continue;
    return WrongField(key,
                      fmt::format("nothing that changes an answer, since {} of this server have no such field",
                                  chat ? "chats" : "completions"),
                      body[key], "leave it out");
  }
  return {};
}

// An integer of [low, high].
ApiStatus ReadInt(const Json& body, const char* key, std::pair<int64_t, int64_t> range, int64_t* value) {
  if (!Given(body, key)) return {};
  const Json& found = body[key];
  const bool integer = found.is_number_integer() && !(found.is_number_unsigned() && found > INT64_MAX);
  if (!integer || found < range.first || found > range.second) {
    return WrongField(key, fmt::format("an integer from {} to {}", range.first, range.second), found);
  }
  *value = found.get<int64_t>();
  return {};
}

ApiStatus ReadBool(const Json& body, const char* key, bool* value) {
  if (!Given(body, key)) return {};
  if (!body[key].is_boolean()) return WrongField(key, "true or false", body[key]);
  *value = body[key].get<bool>();
  return {};
}

// {"token id": bias}
ApiStatus ReadLogitBias(const Json& body, int64_t vocab, std::map<TokenId, float>* biases) {
  if (!Given(body, "logit_bias")) return {};
  const Json& given = body["logit_bias"];
  if (!given.is_object()) return WrongField("logit_bias", "an object of token ids and biases", given);
  for (const auto& [key, bias] : given.items()) {
    const Result<int64_t> id = ParseInt(key, "logit_bias");
    if (!id.ok() || *id < 0 || *id >= vocab) {
      return WrongField("logit_bias", fmt::format("token ids from 0 to {}", vocab - 1), key);
    }
    if (!bias.is_number() || std::fabs(bias.get<double>()) > 100) {
      return WrongField("logit_bias", fmt::format("a bias from -100 to 100 for token {}", key), bias);
    }
    (*biases)[static_cast<TokenId>(*id)] = bias.get<float>();
  }
  return {};
}

ApiStatus ReadStreaming(const Json& body, ApiRequest* request) {
  TRY(ReadBool(body, "stream", &request->stream));
  if (!Given(body, "stream_options")) return {};
  const Json& options = body["stream_options"];
  if (!request->stream) return WrongField("stream_options", "none without \"stream\": true", options, "leave it out");
  if (!options.is_object()) return WrongField("stream_options", "an object", options);
  bool continuous = false;
  if (!ReadBool(options, "include_usage", &request->include_usage).ok() ||
      !ReadBool(options, "continuous_usage_stats", &continuous).ok()) {
    return WrongField("stream_options", "true or false for include_usage", options);
  }
  if (continuous) return WrongField("stream_options", "no continuous_usage_stats", options, "use include_usage");
  return {};
}

// When a text ends, and what of its end belongs to it.
ApiStatus ReadEnds(const ServedModel& served, const Json& body, engine::GenerationRequest* request) {
  TRY(ReadInt(body, "min_tokens", {0, INT32_MAX}, &request->min_tokens));
  if (request->min_tokens > request->max_tokens.value_or(INT32_MAX)) {
    return WrongField("min_tokens", fmt::format("at most max_tokens, {}", *request->max_tokens), request->min_tokens);
  }
  if (Given(body, "stop_token_ids")) {
    TRY(ReadTokenIds(body["stop_token_ids"], "stop_token_ids", served.vocab, &request->stop_tokens));
  }
  TRY(ReadBool(body, "include_stop_str_in_output", &request->include_stop));
  bool skip_special = true;
  TRY(ReadBool(body, "skip_special_tokens", &skip_special));
  request->special_tokens = !skip_special;
  return {};
}

// Everything that chats and completions share but the prompt and log-probabilities.
//   least  tokens that have to be generated
ApiStatus ReadShared(const ServedModel& served, const Json& body, int64_t least, ApiRequest* request) {
  TRY(CheckModel(served, body, true));
  TRY(CheckSupported(body, request->chat));
  request->base = served.defaults;
  request->base.sampling.seed = std::random_device()();
  for (const std::string_view name : engine::RequestKeys()) {
    const std::string key(name);
    const bool own = key == "max_tokens" || key == "logprobs";  // means something else here, and is read below
    if (own || !Given(body, key)) continue;
    const Status read = engine::ReadRequest({{key, body[key]}}, "request", &request->base);  // alone: an error names it
    if (!read.ok()) return FromError(read.error(), key);
  }
  int64_t most = -1;
  TRY(ReadInt(body, "max_tokens", {least, INT32_MAX}, &most));
  if (most >= 0) request->base.max_tokens = most;
  if (!request->chat && most < 0) request->base.max_tokens = kCompletionTokens;
  TRY(ReadInt(body, "n", {1, 128}, &request->choices));
  TRY(ReadStreaming(body, request));
  TRY(ReadBool(body, "timings", &request->timings));
  TRY(ReadEnds(served, body, &request->base));
  TRY(ReadAnswerForm(body, served.constraints, &request->base.constraint));
  return ReadLogitBias(body, served.vocab, &request->base.sampling.logit_bias);
}

// What every prompt needs must fit the context.
//   param  the field of the prompt;  most_param  that of the tokens to generate, or "" where it was not given
ApiStatus CheckLengths(const ServedModel& served, const ApiRequest& request, const std::string& param,
                       const std::string& most_param) {
  const auto answers = static_cast<int64_t>(request.prompts.size()) * request.choices;
  if (answers > kMaxAnswers) {
    return WrongField("n", fmt::format("at most {} answers to one request", kMaxAnswers), answers, "send several");
  }
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const auto tokens = static_cast<int64_t>(request.prompts[i].size());
    const std::string prompt = request.prompts.size() > 1 ? fmt::format("{}[{}]", param, i) : param;
    if (tokens == 0) return WrongField(prompt, "at least one token", Json(), "give some text");
    const int64_t most = request.base.max_tokens.value_or(1);
    if (tokens + most <= served.max_context) continue;
    const std::string& wrong = tokens < served.max_context && !most_param.empty() ? most_param : prompt;
    return ApiError{400,
                    fmt::format("{}: expected at most {} tokens, which is this model's maximum context length, found "
                                "{} of the prompt and {} to generate; shorten the prompt or lower max_tokens",
                                wrong, served.max_context, tokens, most),
                    wrong, "context_length_exceeded"};
  }
  return {};
}

// The conversation as the template gets it.
ApiStatus ReadConversation(const ServedModel& served, const Json& body, const Json& tools, Json* conversation) {
  Json messages;
  TRY(ReadMessages(body, &messages));
  Json kwargs = Json::object();
  if (Given(body, "chat_template_kwargs")) {
    kwargs = body["chat_template_kwargs"];
    if (!kwargs.is_object()) return WrongField("chat_template_kwargs", "an object", kwargs);
  }
  if (Given(body, "reasoning_effort")) {
    if (!body["reasoning_effort"].is_string())
      return WrongField("reasoning_effort", "a text", body["reasoning_effort"]);
    kwargs["reasoning_effort"] = body["reasoning_effort"];
  }
  bool add_generation_prompt = true;
  TRY(ReadBool(body, "add_generation_prompt", &add_generation_prompt));
  *conversation = {{"messages", messages}, {"kwargs", kwargs}, {"add_generation_prompt", add_generation_prompt}};
  if (tools.is_null()) return {};
  const Result<std::string> without = served.prompts->Render(*conversation);
  (*conversation)["tools"] = tools;
  const Result<std::string> with = served.prompts->Render(*conversation);
  if (!with.ok()) return FromError(with.error(), "tools");
  if (without.ok() && *with == *without) {
    return WrongField("tools", "none, since this model's chat template does not show them to the model", tools,
                      "leave them out, or describe them in a message");
  }
  return {};
}

// Functions that the answers may or must call.
ApiStatus ReadCalls(const ServedModel& served, const Json& body, ApiRequest* request) {
  ToolRequest asked;
  TRY(ReadTools(body, &asked));
  request->tools = asked.tools;
  if (asked.tools.is_null()) return {};
  // Where the tags are special tokens, they must be in the text to be found.
  const text::Tokenizer& tokenizer = served.prompts->tokenizer();
  const std::optional<TokenId> tag = tokenizer.IdOf("<tool_call>");
  if (tag && tokenizer.IsSpecial(*tag)) request->base.special_tokens = true;
  if (asked.forced.is_null()) return {};
  if (request->base.constraint != nullptr) {
    return WrongField("tool_choice", "auto or none beside a form of the answer", body["tool_choice"], "leave one out");
  }
  const engine::ForcedCalls forced{served.tool_style, asked.forced, asked.parallel};
  Result<engine::ConstraintPtr> made = engine::ForceCalls(forced, served.constraints);
  if (!made.ok()) return FromError(made.error(), "tools");
  request->base.constraint = std::move(made).value();
  return {};
}

ApiStatus ReadPrompt(const ServedModel& served, const Json& given, const std::string& param,
                     std::vector<TokenId>* prompt) {
  if (given.is_array()) return ReadTokenIds(given, param, served.vocab, prompt);
  if (!given.is_string()) return WrongField(param, "a text or a list of token ids", given);
  Result<std::vector<TokenId>> ids = served.prompts->EncodeText(given.get<std::string>());
  if (!ids.ok()) return FromError(ids.error(), param);
  *prompt = std::move(ids).value();
  return {};
}

// A text, a list of texts, token ids, or a list of lists of token ids.
ApiStatus ReadPrompts(const ServedModel& served, const Json& body, std::vector<std::vector<TokenId>>* prompts) {
  const Json* given = Find(body, "prompt");
  if (given == nullptr || given->is_null() || (given->is_array() && given->empty())) {
    return WrongField("prompt", "a text, a list of texts, or token ids", Json(), "give one");
  }
  const bool many = given->is_array() && !(*given)[0].is_number();
  if (!many) return ReadPrompt(served, *given, "prompt", &prompts->emplace_back());
  for (size_t i = 0; i < given->size(); ++i) {
    TRY(ReadPrompt(served, (*given)[i], fmt::format("prompt[{}]", i), &prompts->emplace_back()));
  }
  return {};
}

}  // namespace

std::vector<engine::GenerationRequest> ApiRequest::Requests() const {
  std::vector<engine::GenerationRequest> all;
  for (const std::vector<TokenId>& prompt : prompts) {
    for (int64_t choice = 0; choice < choices; ++choice) {
      all.push_back(base);
      all.back().prompt = prompt;
      all.back().choice = static_cast<uint64_t>(choice);
    }
  }
  return all;
}

ApiStatus CheckModel(const ServedModel& served, const Json& body, bool required) {
  if (!body.is_object()) {
    ApiError error = WrongField("body", "a JSON object", body);
    error.param.clear();  // it is no field
    return error;
  }
  if (!Given(body, "model") && !required) return {};
  const Json model = Given(body, "model") ? body["model"] : Json();
  if (!model.is_string()) return WrongField("model", "a text", model, fmt::format("this server has {}", served.name));
  if (model == served.name) return {};
  ApiError error = WrongField("model", fmt::format("\"{}\"", served.name), model, "see /v1/models");
  error.status = 404;
  error.code = "model_not_found";
  return error;
}

ApiStatus ReadTokenIds(const Json& list, const std::string& param, int64_t vocab, std::vector<TokenId>* ids) {
  if (!list.is_array()) return WrongField(param, "a list of token ids", list);
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= vocab) {
      return WrongField(param, fmt::format("token ids from 0 to {}", vocab - 1), id);
    }
    ids->push_back(id.get<TokenId>());
  }
  return {};
}

ApiStatus ReadChat(const ServedModel& served, const Json& given, ApiRequest* request) {
  Json body = engine::WithIntegers(given);
  request->chat = true;
  if (Given(body, "max_completion_tokens")) {
    int64_t most = 0;
    TRY(ReadInt(body, "max_completion_tokens", {1, INT32_MAX}, &most));
    body["max_tokens"] = most;
  }
  TRY(ReadShared(served, body, 1, request));
  int64_t top = 0;
  engine::GenerationRequest& base = request->base;
  TRY(ReadBool(body, "logprobs", &base.logprobs));
  TRY(ReadInt(body, "top_logprobs", {0, 20}, &top));
  if (top > 0 && !base.logprobs) {
    return WrongField("top_logprobs", "none without \"logprobs\": true", top, "leave it out");
  }
  base.sampling.logprobs = static_cast<int>(top);
  Json conversation;
  TRY(ReadCalls(served, body, request));
  TRY(ReadConversation(served, body, request->tools, &conversation));
  Result<std::vector<TokenId>> prompt = served.prompts->EncodeChat(conversation);
  if (!prompt.ok()) return FromError(prompt.error(), "messages");
  request->prompts.push_back(std::move(prompt).value());
  const char* most_param = Given(given, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  return CheckLengths(served, *request, "messages", Given(body, "max_tokens") ? most_param : "");
}

ApiStatus ReadCompletion(const ServedModel& served, const Json& given, ApiRequest* request) {
  const Json body = engine::WithIntegers(given);
  request->chat = false;
  TRY(ReadBool(body, "echo", &request->echo));
  TRY(ReadShared(served, body, request->echo ? 0 : 1, request));
  if (Given(body, "best_of") && body["best_of"] != request->choices) {
    return WrongField("best_of", fmt::format("n, {}, since every answer is returned", request->choices),
                      body["best_of"], "leave it out");
  }
  int64_t top = -1;
  TRY(ReadInt(body, "logprobs", {0, engine::kMaxLogprobs}, &top));
  engine::GenerationRequest& base = request->base;
  base.logprobs = top >= 0;
  base.prompt_logprobs = base.logprobs && request->echo;
  base.sampling.logprobs = static_cast<int>(std::max<int64_t>(top, 0));
  TRY(ReadPrompts(served, body, &request->prompts));
  return CheckLengths(served, *request, "prompt", Given(body, "max_tokens") ? "max_tokens" : "");
}

}  // namespace trivet::server
