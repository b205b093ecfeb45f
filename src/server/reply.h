// SPDX-License-Identifier: Apache-2.0
// Answers as JSON: whole, or as the frames of a stream of server-sent events. No sockets, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/service.h"
#include "server/api_request.h"
#include "server/request_stats.h"

namespace trivet::server {

/// One event of a stream.
std::string EventFrame(const Json& data);

/// The answer to one request, put together from pieces. Request and model outlive it.
class Reply {
 public:
  ///   id  without prefix;  created: seconds since 1970
  Reply(const ServedModel* served, const ApiRequest* request, const std::string& id, int64_t created);

  /// Takes a piece and remembers it for Whole().
  void Add(const engine::Piece& piece);
  /// Takes a piece and gives the events that show it: text and log-probabilities, then the reason of the end.
  std::string Frames(const engine::Piece& piece);
  /// What is known of an answer that a piece has ended.
  EndedAnswer Ended(const engine::Piece& piece) const;
  /// Whether every answer has ended.
  bool done() const { return ended_ == answers_.size(); }

  /// The answer to a request without "stream"; to be called once.
  Json Whole();
  /// The events that close a stream: usage when asked for, and [DONE].
  std::string Closing() const;

 private:
  // What is known of one answer.
  struct Answer {
    engine::Piece whole;
    int64_t tokens = 0;                                 // generated
    int64_t cached = 0;                                 // of the prompt, found in the prefix cache
    int64_t characters = 0;                             // of what its log-probabilities have named so far
    bool begun = false;                                 // something of it was streamed
    std::optional<engine::ToolCallParser> parser = {};  // where the answer may call functions
    int64_t calls = 0;                                  // found so far
  };

  Json Head(bool chunk) const;
  Json Usage() const;
  std::string ChunkFrame(size_t index, Json choice);
  std::string Echoed(size_t index) const;
  Json ChatLogprobs(const engine::Piece& piece) const;
  Json TokenLogprob(TokenId token, float logprob) const;
  Json CompletionLogprobs(const engine::Piece& piece, bool first, int64_t* characters) const;
  void Count(const engine::Piece& piece);
  Json ReasonOf(const engine::Piece& piece) const;
  void AddEnd(const engine::Piece& piece, Json* choice) const;
  std::vector<engine::ToolPiece> Parts(const engine::Piece& piece);
  Json MessageOf(const engine::Piece& piece);
  std::vector<Json> DeltasOf(const engine::Piece& piece);
  Json CallOf(size_t index, engine::ToolCall call);

  const ServedModel& served_;
  const ApiRequest& request_;
  const std::string id_;
  const int64_t created_;
  std::vector<Answer> answers_;
  std::string chunk_head_;  // of every event but the last ones; empty before the first
  size_t ended_ = 0;
};

}  // namespace trivet::server
