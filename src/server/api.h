// SPDX-License-Identifier: Apache-2.0
// The routes of OpenAI's API on a service: bodies in, bodies or streams of events out. No sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "engine/service.h"
#include "server/api_error.h"
#include "server/api_request.h"
#include "server/reply.h"
#include "server/request_stats.h"

namespace trivet::server {

/// Requests for text that are worked on or wait at one time; more get 429.
inline constexpr int64_t kMaxAtWork = 224;

/// An answer that comes in events. Its end before the answer's cancels the request.
class EventStream {
 public:
  /// Takes over what it shows.
  ///   stats  counts the answers that end
  EventStream(const ServedModel* served, ApiRequest request, const std::string& id, RequestStats* stats);

  /// The next events; waits for them at most `wait_us` and returns an empty text when none came. A failure is the last.
  std::string Next(int64_t wait_us);
  /// Whether nothing follows.
  bool done() const { return done_; }

 private:
  friend class Api;
  // What has come, at most one piece an answer, counted where it ends one.  Errors: also 504 when the time is up.
  ApiStatus Read(int64_t wait_us, std::vector<engine::Piece>* pieces);

  const ServedModel& served_;
  const ApiRequest request_;
  RequestStats* const stats_;
  const int64_t begun_us_;
  Reply reply_;
  std::unique_ptr<engine::Answers> answers_;
  std::shared_ptr<void> place_;  // shared_ptr: frees the request's place among those at work, whatever way it ends
  bool done_ = false;
};

/// What a route answers.
struct ApiAnswer {
  int status = 200;
  Json body;
  std::unique_ptr<EventStream> stream;  // instead of a body
};

/// Everything the server says. For any thread.
class Api {
 public:
  /// The service outlives it.
  ///   version   of the program;  created: when the model was loaded, seconds since 1970
  Api(engine::Service* service, ServedModel served, std::string version, int64_t created);

  /// GET /v1/models, /v1/models/{id}, /health, /version
  ApiAnswer Models() const;
  ApiAnswer Model(const std::string& id) const;
  ApiAnswer Health() const;
  ApiAnswer Version() const;

  /// GET /dashboard.json: what the dashboard shows.
  ApiAnswer Dashboard() const;

  /// GET /metrics: plain text for Prometheus.
  std::string Metrics() const;

  /// POST /tokenize, /detokenize
  ApiAnswer Tokenize(const std::string& body) const;
  ApiAnswer Detokenize(const std::string& body) const;
  /// GET /tokenizer_info: the texts of the special tokens by name, for clients that tokenize through this server.
  ApiAnswer TokenizerInfo() const;

  /// POST /v1/chat/completions, /v1/completions
  ///   gone   asked now and then whether the client has left, which cancels the request (status 499)
  ApiAnswer Chat(const std::string& body, const std::function<bool()>& gone);
  ApiAnswer Completion(const std::string& body, const std::function<bool()>& gone);

 private:
  using Reader = ApiStatus (*)(const ServedModel&, const Json&, ApiRequest*);
  ApiAnswer Generate(const std::string& body, Reader read, const std::function<bool()>& gone);
  ApiAnswer Await(std::unique_ptr<EventStream> stream, const std::function<bool()>& gone) const;
  Json ModelJson() const;

  engine::Service* const service_;
  const ServedModel served_;
  const std::string version_;
  const int64_t created_;
  RequestStats stats_;
  std::atomic<int64_t> at_work_ = 0;
};

/// An error as an answer.
ApiAnswer ErrorAnswer(const ApiError& error);

}  // namespace trivet::server
