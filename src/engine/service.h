// SPDX-License-Identifier: Apache-2.0
// A generator that lives on: any thread hands it requests and reads their answers as they come, one thread runs it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/generation.h"
#include "sched/scheduler.h"

namespace trivet::engine {

/// What has come of one request since the last look.
struct Piece {
  size_t request = 0;  // its place among those that were submitted together
  std::string text;
  int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  std::vector<TokenId> tokens;
  std::vector<sampling::SampleResult> logprobs, prompt_logprobs;  // where asked for
  FinishReason finish = FinishReason::kNone;
  GenerationTimes times;
};

/// How busy a service is, as of its last step.
struct ServiceCounts {
  sched::SchedulerCounts scheduler;
  int64_t pages = 0;  // KV pages, free or not
  EngineTimes times;
  plan::MemoryPlan memory;
  // Since the start:
  int64_t requests = 0, ended = 0, cancelled = 0, prompt_tokens = 0, generated_tokens = 0;
};

class Service;

/// The answers to requests that were submitted together, for one reader. The service outlives it.
class Answers {
 public:
  /// Cancels what has not ended; within one step its slots and pages are free.
  ~Answers();
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  /// Waits for something new, at most `wait_us`, and returns it: at most one piece a request, none when time is over.
  /// What nobody reads is kept, which is at most the answers themselves, and holds up nobody.
  /// Errors:  kInvalid when a request's parameters left no token to sample; kPeer when a rank failed; kIo when the
  ///          service ended first.
  Result<std::vector<Piece>> Read(int64_t wait_us);

 private:
  friend class Service;
  struct Channel;
  Answers(Service* service, std::shared_ptr<Channel> channel);

  Service* const service_;
  const std::shared_ptr<Channel> channel_;  // shared_ptr: the running thread writes it, also after the reader left
};

/// Continuous batching for callers on many threads. All public functions but Run are for any thread.
class Service {
 public:
  /// How long a reader may rest, unless told otherwise. A batch of more than four wakes a thread and sends a packet for
  /// every token of every answer, which on few cores takes a third of a short step.
  static constexpr int64_t kPieceIntervalUs = 20000;

  ///   end_tokens         end a text
  ///   piece_interval_us  while more than four readers get news in a step, each is woken once in so long, and for its
  ///                      first and its last piece; what it reads is everything until then
  /// Engine and tokenizer outlive the service.
  Service(Engine* engine, const text::Tokenizer* tokenizer, std::vector<int64_t> end_tokens,
          int64_t piece_interval_us = kPieceIntervalUs);
  ~Service();

  /// Runs the engine until drained, on the thread that started the engine.
  /// Errors:  the cause when a rank failed; every reader gets it too, and so does every later call of Submit.
  Status Run();

  /// Hands over requests and waits until they are queued, for one step at most. All are accepted or none.
  /// Errors:  those of Generator::Submit; kPeer and kIo as Answers::Read.
  Result<std::unique_ptr<Answers>> Submit(std::vector<GenerationRequest> requests);

  /// Takes no more requests and lets Run return when those at work have ended, or after `wait_us`, when they get an
  /// error. A later call may shorten the time.
  void Drain(int64_t wait_us);

  ServiceCounts counts() const;
  /// Whether it takes requests.  Errors: why it does not, as Submit.
  Status health() const;

 private:
  friend class Answers;
  struct Entry {
    std::shared_ptr<Answers::Channel> channel;
    size_t request = 0;
    size_t seen = 0;  // tokens that its channel has got
  };
  struct News {
    std::shared_ptr<Answers::Channel> channel;
    bool urgent = false;  // nobody waits for the interval to end
  };
  struct Submission {
    std::vector<GenerationRequest> requests;
    std::shared_ptr<Answers::Channel> channel;
  };
  struct Inbox {
    std::vector<Submission> submissions;
    std::vector<std::shared_ptr<Answers::Channel>> cancelled;
  };

  std::optional<Inbox> WaitForWork();
  Status Turn(Inbox inbox);
  void Accept(Submission submission);
  void CancelAll(Answers::Channel* channel);
  void Deliver(const Generation& generation, const std::string& piece);
  void WakeReaders();
  void Wake(const std::stop_token& stop);
  void End(const Error& error);
  void Publish();

  Engine* const engine_;
  const int64_t piece_interval_us_;
  Generator generator_;
  std::map<int64_t, Entry> entries_;  // by the generator's index; the running thread's, as the generator
  ServiceCounts totals_;              // the running thread's
  std::vector<News> told_;            // of the step; the running thread's

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable work_;
  Inbox inbox_;
  std::optional<int64_t> drain_until_us_;
  std::optional<Error> ended_;  // why Run is over
  ServiceCounts counts_;

  std::mutex wake_mutex_;  // of what follows
  std::condition_variable_any wake_;
  std::vector<News> to_wake_;
  std::jthread waker_;  // last: it ends before what it uses
};

}  // namespace trivet::engine
