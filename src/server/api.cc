// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <utility>

#include "base/clock.h"
#include "server/dashboard.h"
#include "server/metrics.h"

namespace trivet::server {
namespace {

constexpr int64_t kLookUs = 100000;  // between looks at whether the client is there

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string NewId() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

ApiStatus ParseBody(const std::string& text, Json* body) {
  TRY_ASSIGN(*body, ParseJson(text, "body", kBodyLimits));
  return {};
}

}  // namespace

ApiAnswer ErrorAnswer(const ApiError& error) { return {error.status, error.ToJson(), nullptr}; }

EventStream::EventStream(const ServedModel* served, ApiRequest request, const std::string& id, RequestStats* stats)
    : served_(*served),
      request_(std::move(request)),
      stats_(stats),
      begun_us_(NowUs()),
      reply_(served, &request_, id, UnixSeconds()) {}

ApiStatus EventStream::Read(int64_t wait_us, std::vector<engine::Piece>* pieces) {
  const int64_t limit_us = served_.request_limit_us;
  if (limit_us > 0 && NowUs() - begun_us_ > limit_us) {
    return ApiError{504,
                    fmt::format("request: expected to end within {:.1f} s, found that it did not; ask for less, or "
                                "raise --request-seconds",
                                static_cast<double>(limit_us) * 1e-6),
                    "", "timeout"};
  }
  TRY_ASSIGN(*pieces, answers_->Read(wait_us));
  return {};
}

std::string EventStream::Next(int64_t wait_us) {
  std::vector<engine::Piece> pieces;
  if (const ApiStatus read = Read(wait_us, &pieces); !read.ok()) {
    done_ = true;
    return EventFrame(read.error().ToJson());
  }
  std::string frames;
  for (const engine::Piece& piece : pieces) {
    frames += reply_.Frames(piece);
    if (piece.finish != engine::FinishReason::kNone) stats_->Add(reply_.Ended(piece));
  }
  if (!reply_.done()) return frames;
  done_ = true;
  return frames + reply_.Closing();
}

Api::Api(engine::Service* service, ServedModel served, std::string version, int64_t created)
    : service_(service),
      served_(std::move(served)),
      version_(std::move(version)),
      created_(created),
      stats_(served_.name) {}

Json Api::ModelJson() const {
  return {{"id", served_.name},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "trivet"},
          {"max_model_len", served_.max_context}};
}

ApiAnswer Api::Models() const { return {200, {{"object", "list"}, {"data", Json::array({ModelJson()})}}, nullptr}; }

ApiAnswer Api::Model(const std::string& id) const {
  const ApiStatus known = CheckModel(served_, {{"model", id}}, true);
  return known.ok() ? ApiAnswer{200, ModelJson(), nullptr} : ErrorAnswer(known.error());
}

ApiAnswer Api::Health() const {
  const Status health = service_->health();
  return health.ok() ? ApiAnswer{200, {{"status", "ok"}}, nullptr} : ErrorAnswer(FromError(health.error()));
}

ApiAnswer Api::Version() const { return {200, {{"version", version_}}, nullptr}; }

std::string Api::Metrics() const { return MetricsText(service_->counts(), served_.name, stats_.Collect()); }

ApiAnswer Api::Dashboard() const {
  Json facts = {{"model", served_.name}, {"version", version_}, {"context", served_.max_context}};
  const Status health = service_->health();
  facts["health"] = health.ok() ? "ok" : health.error().message;
  facts.update(DashboardJson(service_->counts()));
  facts["recent"] = stats_.Recent();
  facts["plan"] = served_.plan;
  return {200, std::move(facts), nullptr};
}

ApiAnswer Api::Tokenize(const std::string& text) const {
  std::vector<TokenId> ids;
  const auto read = [&]() -> ApiStatus {
    Json body;
    TRY(ParseBody(text, &body));
    if (Find(body, "messages") != nullptr) {
      ApiRequest request;
      if (Find(body, "model") == nullptr) body["model"] = served_.name;
      TRY(ReadChat(served_, body, &request));
      ids = request.prompts[0];
      return {};
    }
    TRY(CheckModel(served_, body, false));
    const Json* prompt = Find(body, "prompt");
    if (prompt == nullptr || !prompt->is_string()) {
      return WrongField("prompt", "a text, or \"messages\"", prompt == nullptr ? Json() : *prompt);
    }
    const Result<bool> special = GetBool(body, "add_special_tokens", true, "body");
    if (!special.ok()) return FromError(special.error(), "add_special_tokens");
    const text::Tokenizer& tokenizer = served_.prompts->tokenizer();
    const auto given = prompt->get<std::string>();
    Result<std::vector<TokenId>> encoded =
        *special ? served_.prompts->EncodeText(given) : tokenizer.Encode(given, {.add_special_tokens = false});
    if (!encoded.ok()) return FromError(encoded.error(), "prompt");
    ids = std::move(encoded).value();
    return {};
  };
  const ApiStatus status = read();
  if (!status.ok()) return ErrorAnswer(status.error());
  return {200, {{"count", ids.size()}, {"max_model_len", served_.max_context}, {"tokens", ids}}, nullptr};
}

ApiAnswer Api::TokenizerInfo() const { return {200, served_.prompts->special_tokens(), nullptr}; }

ApiAnswer Api::Detokenize(const std::string& text) const {
  std::vector<TokenId> ids;
  const auto read = [&]() -> ApiStatus {
    Json body;
    TRY(ParseBody(text, &body));
    TRY(CheckModel(served_, body, false));
    const Json* tokens = Find(body, "tokens");
    return ReadTokenIds(tokens == nullptr ? Json() : *tokens, "tokens", served_.vocab, &ids);
  };
  const ApiStatus status = read();
  if (!status.ok()) return ErrorAnswer(status.error());
  return {200, {{"prompt", served_.prompts->tokenizer().Decode(ids, false)}}, nullptr};
}

ApiAnswer Api::Chat(const std::string& body, const std::function<bool()>& gone) {
  return Generate(body, ReadChat, gone);
}

ApiAnswer Api::Completion(const std::string& body, const std::function<bool()>& gone) {
  return Generate(body, ReadCompletion, gone);
}

ApiAnswer Api::Generate(const std::string& text, Reader read, const std::function<bool()>& gone) {
  const int64_t others = at_work_.fetch_add(1);
  // shared_ptr: see EventStream::place_
  std::shared_ptr<void> place(nullptr, [this](void*) { at_work_.fetch_sub(1); });
  if (others >= kMaxAtWork) {
    return ErrorAnswer(
        {429, fmt::format("server: expected at most {} requests at a time, found more; ask again later", kMaxAtWork),
         "", "rate_limit_exceeded"});
  }
  Json body;
  ApiRequest request;
  if (const ApiStatus parsed = ParseBody(text, &body); !parsed.ok()) return ErrorAnswer(parsed.error());
  if (const ApiStatus valid = read(served_, body, &request); !valid.ok()) return ErrorAnswer(valid.error());
  const bool streams = request.stream;
  const char* input = request.chat ? "messages" : "prompt";
  auto stream = std::make_unique<EventStream>(&served_, std::move(request), NewId(), &stats_);
  Result<std::unique_ptr<engine::Answers>> answers = service_->Submit(stream->request_.Requests());
  if (!answers.ok()) return ErrorAnswer(FromError(answers.error(), input));
  stream->answers_ = std::move(answers).value();
  stream->place_ = std::move(place);
  return streams ? ApiAnswer{200, Json(), std::move(stream)} : Await(std::move(stream), gone);
}

ApiAnswer Api::Await(std::unique_ptr<EventStream> stream, const std::function<bool()>& gone) const {
  while (!stream->reply_.done()) {
    if (gone()) return ErrorAnswer({499, "client: expected to wait for the answer, found that it left", "", ""});
    std::vector<engine::Piece> pieces;
    if (const ApiStatus read = stream->Read(kLookUs, &pieces); !read.ok()) return ErrorAnswer(read.error());
    for (const engine::Piece& piece : pieces) {
      stream->reply_.Add(piece);
      if (piece.finish != engine::FinishReason::kNone) stream->stats_->Add(stream->reply_.Ended(piece));
    }
  }
  return {200, stream->reply_.Whole(), nullptr};
}

}  // namespace trivet::server
