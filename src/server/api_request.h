// SPDX-License-Identifier: Apache-2.0
// Requests for chats and completions: JSON to what the engine runs. Pure functions of the body and the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "engine/constraints.h"
#include "engine/generation.h"
#include "engine/prompts.h"
#include "engine/tool_calls.h"
#include "server/api_error.h"

namespace trivet::server {

/// What requests are read against.
struct ServedModel {
  std::string name;
  const engine::Prompts* prompts = nullptr;
  engine::Constraints* constraints = nullptr;
  engine::GenerationRequest defaults;  // sampling of requests that say nothing
  std::vector<int64_t> end_tokens;
  int64_t max_context = 0;  // tokens
  int64_t vocab = 0;
  engine::ToolStyle tool_style = engine::ToolStyle::kJson;
  Json plan;                     // what the dashboard draws
  int64_t request_limit_us = 0;  // of time from submission to the end; 0: none
};

/// Most answers to one request: prompts times n.
inline constexpr int64_t kMaxAnswers = 256;
/// Nesting of a body.
inline constexpr JsonLimits kBodyLimits{int64_t{32} << 20, 64};

/// A request, checked.
struct ApiRequest {
  bool chat = false;
  bool stream = false, include_usage = false;
  bool echo = false;
  bool timings = false;  // the answers tell their times
  int64_t choices = 1;   // answers to each prompt
  std::vector<std::vector<TokenId>> prompts;
  engine::GenerationRequest base;  // of every answer, without prompt and choice
  Json tools;                      // functions that answers may call, or null

  /// What to submit, in the order of the answers' indices.
  std::vector<engine::GenerationRequest> Requests() const;
};

/// Reads a body of /v1/chat/completions.  Errors: 400 with the field, 404 for another model.
ApiStatus ReadChat(const ServedModel& served, const Json& body, ApiRequest* request);

/// Reads a body of /v1/completions.  Errors: as ReadChat.
ApiStatus ReadCompletion(const ServedModel& served, const Json& body, ApiRequest* request);

/// Checks "model", which may be absent only when `required` is false.  Errors: 400, 404 model_not_found.
ApiStatus CheckModel(const ServedModel& served, const Json& body, bool required);

/// Reads token ids in [0, vocab).  Errors: 400 with `param`.
ApiStatus ReadTokenIds(const Json& list, const std::string& param, int64_t vocab, std::vector<TokenId>* ids);

}  // namespace trivet::server
