// SPDX-License-Identifier: Apache-2.0
#include "engine/service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace trivet::engine {
namespace {

constexpr int64_t kIdleUs = 100000;  // between looks at the ranks while there is nothing to do

// Readers of a step that the running thread wakes by itself. A woken thread may take the core of who wakes it, so that
// a step of 64 waits for all of them to have had their turn: a seventh of a batch's time went there.
constexpr size_t kWokenHere = 4;

Error ShuttingDown() {
  return MakeError(Code::kIo, "service: expected to run, found that it is shutting down; ask again later");
}

}  // namespace

struct Answers::Channel {
  std::mutex mutex;
  std::condition_variable news;
  std::vector<Piece> pieces;          // one a request, what has not been read
  std::vector<bool> fresh;            // whether there is something in it
  std::optional<Error> error;         // told after what has come before it
  bool queued = false;                // the requests have been accepted
  std::vector<int64_t> indices = {};  // of the generator; the running thread's
  int64_t woken_us = 0;               // the waker's

  void Fail(const Error& why) {
    const std::lock_guard lock(mutex);
    if (!error) error = why;
    news.notify_all();
  }
};

Answers::Answers(Service* service, std::shared_ptr<Channel> channel)
    : service_(service), channel_(std::move(channel)) {}

Answers::~Answers() {
  const std::lock_guard lock(service_->mutex_);
  if (service_->ended_) return;
  service_->inbox_.cancelled.push_back(channel_);
  service_->work_.notify_all();
}

Result<std::vector<Piece>> Answers::Read(int64_t wait_us) {
  std::unique_lock lock(channel_->mutex);
  const auto fresh = [this] { return std::count(channel_->fresh.begin(), channel_->fresh.end(), true) > 0; };
  channel_->news.wait_for(lock, std::chrono::microseconds(wait_us), [&] { return channel_->error || fresh(); });
  std::vector<Piece> pieces;
  if (!fresh() && channel_->error) return *channel_->error;
  for (size_t i = 0; i < channel_->pieces.size(); ++i) {
    if (!channel_->fresh[i]) continue;
    channel_->fresh[i] = false;
    pieces.push_back(std::exchange(channel_->pieces[i], {}));
    pieces.back().request = i;
  }
  return pieces;
}

Service::Service(Engine* engine, const text::Tokenizer* tokenizer, std::vector<int64_t> end_tokens,
                 int64_t piece_interval_us)
    : engine_(engine), piece_interval_us_(piece_interval_us), generator_(engine, tokenizer, std::move(end_tokens)) {
  totals_.pages = engine->limits().pages * engine->layout().replicas;
  totals_.memory = engine->memory();
  Publish();
  waker_ = std::jthread([this](const std::stop_token& stop) { Wake(stop); });
}

Service::~Service() = default;

// Wakes readers beside the steps. What they are told stands in their channels before.
void Service::Wake(const std::stop_token& stop) {
  std::vector<News> waiting;  // for the end of their intervals
  int64_t next_us = 0;
  std::unique_lock lock(wake_mutex_);
  const auto some = [this] { return !to_wake_.empty(); };
  while (!stop.stop_requested()) {
    if (waiting.empty()) {
      wake_.wait(lock, stop, some);
    } else {
      wake_.wait_for(lock, stop, std::chrono::microseconds(std::max<int64_t>(0, next_us - NowUs())), some);
    }
    for (News& news : std::exchange(to_wake_, {})) waiting.push_back(std::move(news));
    lock.unlock();
    const int64_t now = NowUs();
    next_us = INT64_MAX;
    std::erase_if(waiting, [&](const News& news) {
      Answers::Channel& channel = *news.channel;
      const int64_t due = channel.woken_us + piece_interval_us_;
      if (now < due && !news.urgent && channel.woken_us != now) {
        next_us = std::min(next_us, due);
        return false;
      }
      channel.woken_us = now;
      channel.news.notify_all();
      return true;
    });
    lock.lock();
  }
}

void Service::WakeReaders() {
  if (told_.size() <= kWokenHere) {
    for (const News& news : told_) news.channel->news.notify_all();
  } else {
    const std::lock_guard lock(wake_mutex_);
    to_wake_.insert(to_wake_.end(), told_.begin(), told_.end());
    wake_.notify_one();
  }
  told_.clear();
}

Result<std::unique_ptr<Answers>> Service::Submit(std::vector<GenerationRequest> requests) {
  auto channel = std::make_shared<Answers::Channel>();  // shared_ptr: see Answers::channel_
  channel->pieces.resize(requests.size());
  channel->fresh.resize(requests.size());
  TRY(health());
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return *ended_;  // meanwhile
    inbox_.submissions.push_back({std::move(requests), channel});
    work_.notify_all();
  }
  std::unique_lock lock(channel->mutex);
  channel->news.wait(lock, [&] { return channel->queued || channel->error; });
  if (!channel->queued) return *channel->error;
  return std::unique_ptr<Answers>(new Answers(this, std::move(channel)));
}

void Service::Drain(int64_t wait_us) {
  const std::lock_guard lock(mutex_);
  drain_until_us_ = std::min(drain_until_us_.value_or(INT64_MAX), NowUs() + wait_us);
  work_.notify_all();
}

ServiceCounts Service::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Status Service::health() const {
  const std::lock_guard lock(mutex_);
  if (ended_) return *ended_;
  return drain_until_us_ ? Status(ShuttingDown()) : Status();
}

Status Service::Run() {
  while (std::optional<Inbox> inbox = WaitForWork()) {
    if (const Status turned = Turn(std::move(*inbox)); !turned.ok()) {
      End(turned.error());
      return turned;
    }
  }
  End(ShuttingDown());
  return {};
}

// What has come in; waits when there is nothing else to do. Nothing when the service is to end.
std::optional<Service::Inbox> Service::WaitForWork() {
  std::unique_lock lock(mutex_);
  const auto come = [this] { return !inbox_.submissions.empty() || !inbox_.cancelled.empty(); };
  if (entries_.empty()) {
    work_.wait_for(lock, std::chrono::microseconds(kIdleUs), [&] { return come() || drain_until_us_; });
  }
  const bool idle = entries_.empty() && inbox_.submissions.empty();
  if (drain_until_us_ && (idle || NowUs() >= *drain_until_us_)) return std::nullopt;
  return std::exchange(inbox_, {});
}

Status Service::Turn(Inbox inbox) {
  for (Submission& submission : inbox.submissions) Accept(std::move(submission));
  for (const auto& channel : inbox.cancelled) CancelAll(channel.get());
  TRY(engine_->Watch());
  Publish();  // what was cancelled is free before the step, whatever time that takes
  const Result<bool> stepped =
      generator_.Step([this](const Generation& generation, const std::string& piece) { Deliver(generation, piece); });
  WakeReaders();
  if (!stepped.ok()) return stepped.error();
  Publish();
  return {};
}

void Service::Accept(Submission submission) {
  Answers::Channel* channel = submission.channel.get();
  for (size_t i = 0; i < submission.requests.size(); ++i) {
    const auto prompt_tokens = static_cast<int64_t>(submission.requests[i].prompt.size());
    const Result<int64_t> index = generator_.Submit(std::move(submission.requests[i]));
    if (!index.ok()) {
      CancelAll(channel);
      channel->Fail(index.error());
      return;
    }
    ++totals_.requests;
    totals_.prompt_tokens += prompt_tokens;
    entries_[*index] = {submission.channel, i, 0};
    channel->indices.push_back(*index);
  }
  const std::lock_guard lock(channel->mutex);
  channel->queued = true;
  channel->news.notify_all();
}

void Service::CancelAll(Answers::Channel* channel) {
  for (const int64_t index : channel->indices) {
    generator_.Cancel(index);
    totals_.cancelled += static_cast<int64_t>(entries_.erase(index));
  }
}

void Service::Deliver(const Generation& generation, const std::string& text) {
  const auto found = entries_.find(generation.index);
  CHECK(found != entries_.end());
  Entry& entry = found->second;
  Answers::Channel& channel = *entry.channel;
  if (generation.error) {
    channel.Fail(*generation.error);
  } else {
    const std::lock_guard lock(channel.mutex);
    Piece& piece = channel.pieces[entry.request];
    const auto seen = static_cast<std::ptrdiff_t>(entry.seen);
    if (entry.seen == 0) piece.prompt_logprobs = generation.prompt_logprobs;
    piece.text += text;
    piece.cached_tokens = generation.cached_tokens;
    piece.tokens.insert(piece.tokens.end(), generation.tokens.begin() + seen, generation.tokens.end());
    if (!generation.logprobs.empty()) {
      piece.logprobs.insert(piece.logprobs.end(), generation.logprobs.begin() + seen, generation.logprobs.end());
    }
    piece.finish = generation.finish;
    piece.times = generation.times;
    channel.fresh[entry.request] = true;
    const bool urgent = entry.seen == 0 || generation.finish != FinishReason::kNone;
    told_.push_back({entry.channel, urgent});
  }
  totals_.generated_tokens += static_cast<int64_t>(generation.tokens.size() - entry.seen);
  entry.seen = generation.tokens.size();
  if (generation.finish == FinishReason::kNone) return;
  ++totals_.ended;
  entries_.erase(found);
}

// Tells every reader, present and future.
void Service::End(const Error& error) {
  Inbox left;
  {
    const std::lock_guard lock(mutex_);
    ended_ = error;
    left = std::exchange(inbox_, {});
  }
  for (const Submission& submission : left.submissions) submission.channel->Fail(error);
  for (const auto& [index, entry] : entries_) {
    entry.channel->Fail(error);
    generator_.Cancel(index);
  }
  entries_.clear();
  Publish();
}

void Service::Publish() {
  totals_.scheduler = engine_->counts();
  totals_.times = engine_->times();
  const std::lock_guard lock(mutex_);
  counts_ = totals_;
}

}  // namespace trivet::engine
