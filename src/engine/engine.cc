// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <fmt/format.h>

#include <thread>

#include "base/clock.h"
#include "engine/limits.h"
#include "engine/plan_facts.h"

namespace trivet::engine {

Engine::Engine(const OpenedModel& model, const EngineOptions& options, plan::Layout layout, RankOptions rank_options)
    : model_(model),
      options_(options),
      layout_(std::move(layout)),
      rank_options_(std::move(rank_options)),
      scheduler_(rank_options_.limits) {}

Result<std::unique_ptr<Engine>> Engine::Start(const OpenedModel& model, const EngineOptions& options,
                                              const LoadProgress& progress) {
  TRY_ASSIGN(plan::Layout layout, plan::MakeLayout(model.geometry, options.layout));
  if (options.fault.kind != comm::FaultKind::kNone && (options.fault.rank < 0 || options.fault.rank >= layout.ranks)) {
    return MakeError(Code::kUsage, fmt::format("--fault: expected a rank from 0 to {}, found {}; choose one that runs",
                                               layout.ranks - 1, options.fault.rank));
  }
  RankOptions rank_options;
  TRY_ASSIGN(const int64_t available, device::Device::FreeBytesOfAll(options.backend, layout.ranks));
  const plan::LayoutCost cost = plan::PriceLayout(model.geometry, layout, BytesOf(model));
  TRY_ASSIGN(EngineSizes sizes, MakeSizes(model.geometry, layout, cost, options, available));
  rank_options.limits = sizes.limits;
  rank_options.backend = options.backend;
  rank_options.kernels = options.kernels;
  rank_options.threads = ThreadsPerRank(options, layout.ranks);
  rank_options.numerics = options.numerics;
  rank_options.transport = options.transport;
  rank_options.fault = options.fault;
  rank_options.sites = options.sites;
  std::unique_ptr<Engine> engine(new Engine(model, options, std::move(layout), rank_options));
  engine->memory_ = std::move(sizes.memory);
  TRY(engine->StartRanks(progress));
  return engine;
}

Status Engine::StartRanks(const LoadProgress& progress) {
  const int64_t begin = NowUs();
  comm::GroupOptions group_options;
  group_options.ranks = layout_.ranks;
  group_options.spin = layout_.ranks <= static_cast<int64_t>(std::thread::hardware_concurrency());
  TRY_ASSIGN(group_, comm::Group::Make(group_options));
  comm::Group* group = group_.get();
  const auto make = [this, group](int64_t rank, const LoadProgress& shown) {
    return RankWorker::Make(model_, layout_, rank_options_, comm::Communicator(group, rank, options_.fault), shown);
  };
  TRY_ASSIGN(ranks_, Ranks::Start(options_.launch, group, [make, group](int64_t rank) -> Status {
               TRY_ASSIGN(const std::unique_ptr<RankWorker> worker, make(rank, {}));
               TRY(worker->comm().Barrier());  // everybody has loaded
               const Status served = worker->Serve();
               // Before its memory goes, which waits for a GPU whose kernels may wait for this rank.
               if (!served.ok()) group->Abort(served.error().message, served.error().code);
               return served;
             }));
  Result<std::unique_ptr<RankWorker>> worker = make(0, [this, &progress](int64_t done, int64_t total) {
    ranks_->Watch();
    if (progress) progress(done, total);
  });
  if (!worker.ok()) {
    if (group->aborted()) return group->AbortError();
    group->Abort(worker.error().message, worker.error().code);
    return worker.error();
  }
  worker_ = std::move(worker).value();
  TRY(worker_->comm().Barrier());
  times_.load_s = static_cast<double>(NowUs() - begin) * 1e-6;
  times_.weight_bytes = worker_->weight_bytes();
  return {};
}

Engine::~Engine() {
  if (group_ == nullptr) return;
  // Without an end announced, an engine that failed half-way must not leave ranks waiting.
  if (worker_ == nullptr || !worker_->Announce(nullptr).ok()) group_->Abort("the engine ended");
  if (ranks_ != nullptr && !ranks_->Join()) {
    // A thread that never came back still uses the group's memory.
    group_.release();  // NOLINT: leaked on purpose
  }
}

Status Engine::Submit(sched::Request request) {
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= model_.geometry.vocab) {
      return MakeError(Code::kInvalid,
                       fmt::format("prompt: expected token ids from 0 to {}, found {}; use this model's "
                                   "tokenizer",
                                   model_.geometry.vocab - 1, token));
    }
  }
  return scheduler_.Submit(std::move(request));
}

Status Engine::CheckRange() const {
  const uint32_t flags = worker_->range_flags();
  if ((flags & kernels::kNonFinite) != 0) {
    return MakeError(Code::kInvalid,
                     "activations: expected finite numbers, found an infinity or a NaN; the checkpoint is "
                     "damaged or not of this family");
  }
  if ((flags & kernels::kSaturated) != 0 && options_.strict) {
    return MakeError(Code::kInvalid, fmt::format("sums: expected parts below {} in magnitude, found a larger one; use "
                                                 "--numerics fast, or run without --strict",
                                                 kernels::kLeafLimit));
  }
  return {};
}

Result<bool> Engine::Step(const LogitsSink& sink) {
  if (failure_) return *failure_;
  Result<bool> stepped = RunStep(sink);
  if (!stepped.ok()) failure_ = stepped.error();
  return stepped;
}

Status Engine::Watch() {
  if (failure_) return *failure_;
  ranks_->Watch();
  if (group_->aborted()) failure_ = group_->AbortError();
  return failure_ ? Status(*failure_) : Status();
}

Result<bool> Engine::RunStep(const LogitsSink& sink) {
  const int64_t begin = NowUs();
  const sched::StepPlan plan = scheduler_.Next();
  if (plan.spans.empty()) return false;
  const int64_t vocab = model_.geometry.vocab;
  step_tokens_ = static_cast<int64_t>(plan.tokens.size());
  logits_.resize(static_cast<size_t>(plan.logits_rows * vocab));
  if (keep_hidden_) {
    hidden_.resize(model_.geometry.layers.size() * plan.tokens.size() * static_cast<size_t>(model_.geometry.hidden));
  }
  const int64_t planned = NowUs();
  TRY(worker_->Announce(&plan));
  const Status ran = worker_->RunStep(plan, {logits_, hidden_});
  if (!ran.ok()) {
    group_->Abort(ran.error().message, ran.error().code);
    return ran.error();
  }
  times_.schedule_us += planned - begin;
  const int64_t computed = NowUs();
  times_.forward_us += computed - planned;
  times_.collective_us.resize(static_cast<size_t>(layout_.ranks));
  for (int64_t rank = 0; rank < layout_.ranks; ++rank) {
    times_.collective_us[static_cast<size_t>(rank)] = group_->collective_us(rank).load(std::memory_order_relaxed);
  }
  TRY(CheckRange());
  std::vector<sched::SampledToken> sampled;
  for (const sched::Span& span : plan.spans) {
    const bool wanted = scheduler_.WantsToken(span);
    if (span.logits_count == 0) continue;
    const std::span<const float> rows(logits_.data() + span.logits_begin * vocab,
                                      static_cast<size_t>(span.logits_count * vocab));
    TRY_ASSIGN(const std::optional<TokenId> token, sink(span, rows, wanted));
    if (wanted) {
      CHECK(token.has_value());
      sampled.push_back({span.seq, *token});
    }
  }
  const int64_t looked = NowUs();
  times_.sample_us += looked - computed;
  scheduler_.Commit(plan, sampled);
  times_.schedule_us += NowUs() - looked;
  return true;
}

}  // namespace trivet::engine
