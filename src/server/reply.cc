// SPDX-License-Identifier: Apache-2.0
#include "server/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/str.h"

namespace trivet::server {
namespace {

// JSON has no infinity: a forbidden token's log-probability is shown as this.
constexpr double kLeastLogprob = -9999;

double Shown(float logprob) { return std::max(static_cast<double>(logprob), kLeastLogprob); }

int64_t Characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
}

template <class T>
void Append(std::vector<T>* to, const std::vector<T>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

std::string EventFrame(const Json& data) { return "data: " + DumpJson(data) + "\n\n"; }

Reply::Reply(const ServedModel* served, const ApiRequest* request, const std::string& id, int64_t created)
    : served_(*served),
      request_(*request),
      id_((request->chat ? "chatcmpl-" : "cmpl-") + id),
      created_(created),
      answers_(request->prompts.size() * static_cast<size_t>(request->choices)) {
  for (Answer& answer : answers_) {
    if (!request->tools.is_null()) answer.parser.emplace(served->tool_style, request->tools);
  }
}

Json Reply::ReasonOf(const engine::Piece& piece) const {
  if (piece.finish == engine::FinishReason::kNone) return Json();
  if (piece.finish == engine::FinishReason::kStop && answers_[piece.request].calls > 0) return "tool_calls";
  return engine::FinishReasonName(piece.finish);
}

void Reply::AddEnd(const engine::Piece& piece, Json* choice) const {
  (*choice)["finish_reason"] = ReasonOf(piece);
  if (request_.timings) (*choice)["timings"] = TimingsJson(Ended(piece));
}

EndedAnswer Reply::Ended(const engine::Piece& piece) const {
  const size_t prompt = piece.request / static_cast<size_t>(request_.choices);
  const Json reason = ReasonOf(piece);
  return {created_,
          request_.chat,
          static_cast<int64_t>(request_.prompts[prompt].size()),
          answers_[piece.request].tokens,
          reason.is_null() ? "" : reason.get<std::string>(),
          piece.times};
}

Json Reply::CallOf(size_t index, engine::ToolCall call) {
  const int64_t number = answers_[index].calls++;
  return {{"id", fmt::format("call_{}_{}_{}", id_.substr(id_.find('-') + 1), index, number)},
          {"type", "function"},
          {"function", {{"name", std::move(call.name)}, {"arguments", std::move(call.arguments)}}}};
}

// Text and calls that a piece brings, in their order.
std::vector<engine::ToolPiece> Reply::Parts(const engine::Piece& piece) {
  std::optional<engine::ToolCallParser>& parser = answers_[piece.request].parser;
  if (!parser) return {{piece.text, std::nullopt}};
  std::vector<engine::ToolPiece> parts = parser->Push(piece.text);
  if (piece.finish != engine::FinishReason::kNone) Append(&parts, parser->Flush());
  return parts;
}

Json Reply::MessageOf(const engine::Piece& piece) {
  std::string text;
  Json calls = Json::array();
  for (engine::ToolPiece& part : Parts(piece)) {
    text += part.text;
    if (part.call) calls.push_back(CallOf(piece.request, std::move(*part.call)));
  }
  Json message = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  if (calls.empty()) return message;
  if (text.empty()) message["content"] = nullptr;
  message["tool_calls"] = std::move(calls);
  return message;
}

// The deltas that show a piece of a chat.
std::vector<Json> Reply::DeltasOf(const engine::Piece& piece) {
  std::vector<Json> deltas;
  for (engine::ToolPiece& part : Parts(piece)) {
    if (!part.text.empty()) deltas.push_back({{"content", part.text}});
    if (!part.call) continue;
    Json call = {{"index", answers_[piece.request].calls}};
    call.update(CallOf(piece.request, std::move(*part.call)));
    deltas.push_back({{"tool_calls", Json::array({std::move(call)})}});
  }
  return deltas;
}

void Reply::Count(const engine::Piece& piece) {
  answers_[piece.request].tokens += static_cast<int64_t>(piece.tokens.size());
  answers_[piece.request].cached = piece.cached_tokens;
  ended_ += piece.finish != engine::FinishReason::kNone;
}

void Reply::Add(const engine::Piece& piece) {
  Count(piece);
  engine::Piece& whole = answers_[piece.request].whole;
  whole.text += piece.text;
  Append(&whole.tokens, piece.tokens);
  Append(&whole.logprobs, piece.logprobs);
  Append(&whole.prompt_logprobs, piece.prompt_logprobs);
  whole.finish = piece.finish;
  whole.times = piece.times;
}

Json Reply::Head(bool chunk) const {
  const char* chat = chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_},
          {"object", request_.chat ? chat : "text_completion"},
          {"created", created_},
          {"model", served_.name}};
}

Json Reply::Usage() const {
  int64_t prompt = 0, completion = 0;
  for (const std::vector<TokenId>& ids : request_.prompts) prompt += static_cast<int64_t>(ids.size());
  for (const Answer& answer : answers_) completion += answer.tokens;
  // Of each prompt once, as its tokens are counted: what its first choice found.
  int64_t cached = 0;
  for (size_t i = 0; i < answers_.size(); i += static_cast<size_t>(request_.choices)) cached += answers_[i].cached;
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

// The prompt's text, for completions that repeat it.
std::string Reply::Echoed(size_t index) const {
  if (!request_.echo) return "";
  const std::vector<TokenId>& prompt = request_.prompts[index / static_cast<size_t>(request_.choices)];
  return served_.prompts->tokenizer().Decode(prompt, true);
}

Json Reply::TokenLogprob(TokenId token, float logprob) const {
  const std::string bytes = served_.prompts->tokenizer().TokenBytes(token);
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<uint8_t>(byte));
  return {{"token", RepairUtf8(bytes)}, {"logprob", Shown(logprob)}, {"bytes", numbers}};
}

// Of the tokens of a message's content: the token that ended it belongs to none.
Json Reply::ChatLogprobs(const engine::Piece& piece) const {
  if (!request_.base.logprobs) return Json();
  const std::vector<int64_t>& ends = served_.end_tokens;
  Json content = Json::array();
  for (const sampling::SampleResult& result : piece.logprobs) {
    const bool end = std::find(ends.begin(), ends.end(), result.token) != ends.end();
    if (end && !request_.base.ignore_eos) continue;
    Json top = Json::array();
    for (const auto& [token, logprob] : result.top) top.push_back(TokenLogprob(token, logprob));
    content.push_back(TokenLogprob(result.token, result.logprob));
    content.back()["top_logprobs"] = top;
  }
  return {{"content", content}, {"refusal", nullptr}};
}

// Of every sampled token, and first of the prompt's when it is repeated. Offsets count characters of the text.
Json Reply::CompletionLogprobs(const engine::Piece& piece, bool first, int64_t* characters) const {
  if (!request_.base.logprobs) return Json();
  const text::Tokenizer& tokenizer = served_.prompts->tokenizer();
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  const auto add = [&](TokenId token, const sampling::SampleResult* result) {
    const std::string bytes = tokenizer.TokenBytes(token);
    tokens.push_back(RepairUtf8(bytes));
    offsets.push_back(*characters);
    *characters += Characters(bytes);
    logprobs.push_back(result == nullptr ? Json() : Json(Shown(result->logprob)));
    Json top = result == nullptr ? Json() : Json::object();
    if (result != nullptr) {
      for (const auto& [other, logprob] : result->top) {
        top.emplace(RepairUtf8(tokenizer.TokenBytes(other)), Shown(logprob));
      }
      if (!result->top.empty()) top.emplace(RepairUtf8(bytes), Shown(result->logprob));  // beside the best
    }
    tops.push_back(std::move(top));
  };
  if (first && request_.echo) {
    add(request_.prompts[piece.request / static_cast<size_t>(request_.choices)][0], nullptr);
    for (const sampling::SampleResult& result : piece.prompt_logprobs) add(result.token, &result);
  }
  for (const sampling::SampleResult& result : piece.logprobs) add(result.token, &result);
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

Json Reply::Whole() {
  Json whole = Head(false);
  Json choices = Json::array();
  for (size_t i = 0; i < answers_.size(); ++i) {
    engine::Piece piece = answers_[i].whole;
    piece.request = i;
    Json choice = {{"index", i}};
    if (request_.chat) {
      choice["message"] = MessageOf(piece);
      choice["logprobs"] = ChatLogprobs(piece);
    } else {
      int64_t characters = 0;
      choice["text"] = Echoed(i) + piece.text;
      choice["logprobs"] = CompletionLogprobs(piece, true, &characters);
    }
    AddEnd(piece, &choice);
    choices.push_back(std::move(choice));
  }
  whole["choices"] = std::move(choices);
  whole["usage"] = Usage();
  return whole;
}

// An event with one choice. All events of a stream have the same head, which is written once.
std::string Reply::ChunkFrame(size_t index, Json choice) {
  if (chunk_head_.empty()) {
    chunk_head_ = "data: " + DumpJson(Head(true));
    chunk_head_.back() = ',';  // the object goes on
  }
  Json whole = {{"index", index}};
  for (auto& [key, value] : choice.items()) whole[key] = std::move(value);
  if (!whole.contains("logprobs")) whole["logprobs"] = nullptr;
  if (!whole.contains("finish_reason")) whole["finish_reason"] = nullptr;
  const char* usage = request_.include_usage ? ",\"usage\":null" : "";
  return chunk_head_ + "\"choices\":[" + DumpJson(whole) + "]" + usage + "}\n\n";
}

std::string Reply::Frames(const engine::Piece& piece) {
  Count(piece);
  Answer& answer = answers_[piece.request];
  const bool first = !std::exchange(answer.begun, true);
  std::vector<Json> choices;
  if (request_.chat) {
    if (first) choices.push_back({{"delta", {{"role", "assistant"}, {"content", ""}}}});
    for (Json& delta : DeltasOf(piece)) choices.push_back({{"delta", std::move(delta)}});
  } else if (std::string text = (first ? Echoed(piece.request) : "") + piece.text; !text.empty()) {
    choices.push_back({{"text", std::move(text)}});
  }
  const Json logprobs = request_.chat ? ChatLogprobs(piece) : CompletionLogprobs(piece, first, &answer.characters);
  if (!logprobs.is_null() && !logprobs.begin()->empty()) {
    const size_t spoken = first && request_.chat ? 1 : 0;  // behind the role
    const Json silent = request_.chat ? Json{{"delta", {{"content", ""}}}} : Json{{"text", ""}};
    if (choices.size() == spoken) choices.push_back(silent);
    choices[spoken]["logprobs"] = logprobs;
  }
  if (piece.finish != engine::FinishReason::kNone) {
    choices.push_back(request_.chat ? Json{{"delta", Json::object()}} : Json{{"text", ""}});
    AddEnd(piece, &choices.back());
  }
  std::string frames;
  for (Json& choice : choices) frames += ChunkFrame(piece.request, std::move(choice));
  return frames;
}

std::string Reply::Closing() const {
  std::string frames;
  if (request_.include_usage) {
    Json usage = Head(true);
    usage["choices"] = Json::array();
    usage["usage"] = Usage();
    frames += EventFrame(usage);
  }
  return frames + "data: [DONE]\n\n";
}

}  // namespace trivet::server
