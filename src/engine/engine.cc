// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "comm/wht6.h"
#include "engine/fault_sites.h"
#include "engine/knobs.h"
#include "engine/limits.h"
#include "engine/plan_facts.h"
#include "engine/prompts.h"
#include "engine/routes.h"
#include "engine/step_cost.h"
#include "proof/rank_files.h"

namespace trivet::engine {
Engine::Engine(const OpenedModel& model, const EngineOptions& options, plan::Layout layout, RankOptions rank_options,
               std::unique_ptr<const model::RouteTable> routes)
    : model_(model),
      options_(options),
      layout_(std::move(layout)),
      routes_(std::move(routes)),
      rank_options_(std::move(rank_options)),
      logits_(static_cast<size_t>(layout_.replicas)),
      hidden_(logits_.size()),
      drawn_(logits_.size()) {
  for (size_t replica = 0; replica < logits_.size(); ++replica) schedulers_.emplace_back(rank_options_.limits);
}

// Whether sums may be compressed: without a promise across layouts, and in groups that no two tokens share.
Status CheckCompression(int64_t hidden, const EngineOptions& options) {
  if (!options.compress_sums) return {};
  if (options.numerics != kernels::Numerics::kFast) {
    return MakeError(Code::kUsage,
                     "--compress-sums: expected --numerics fast, found another, whose sums lose no bit; give that, or "
                     "leave --compress-sums out");
  }
  if (options.layout.sequence_parallel) {
    return MakeError(
        Code::kUnsupported,
        "--compress-sums: expected sums that all ranks need, found --sp, with which each gets the rows that "
        "it keeps; leave one of the two out");
  }
  if (hidden % comm::kWhtGroup == 0) return {};
  return MakeError(Code::kUnsupported,
                   fmt::format("--compress-sums: expected a hidden width of whole groups of {}, found {}; leave it out",
                               comm::kWhtGroup, hidden));
}

Result<std::unique_ptr<Engine>> Engine::Start(const OpenedModel& model, const EngineOptions& options,
                                              const LoadProgress& progress) {
  TRY_ASSIGN(plan::Layout layout, plan::MakeLayout(model.geometry, options.layout));
  TRY(CheckFault(model.geometry, layout, options));
  TRY(CheckBackend(layout, options.backend));
  TRY(CheckCompression(model.geometry.hidden, options));
  RankOptions rank_options;
  TRY_ASSIGN(const int64_t available, device::Device::FreeBytesOfAll(options.backend, layout.world()));
  const plan::ElementBytes bytes = BytesOf(model, options.kv_dtype);
  plan::LayoutCost cost = plan::PriceLayout(model.geometry, layout, bytes);
  TRY_ASSIGN(EngineSizes sizes, MakeSizes(model.geometry, layout, cost, options, available));
  rank_options.limits = sizes.limits;
  rank_options.limits.cost = StepCostOf(model.geometry, bytes, options.backend);
  rank_options.backend = options.backend;
  rank_options.kernels = options.kernels;
  rank_options.threads = ThreadsPerRank(options, layout.world());
  rank_options.numerics = options.numerics;
  rank_options.transport = options.transport;
  rank_options.tuning = options.tuning;
  rank_options.compress_sums = options.compress_sums;
  rank_options.time_replays = options.time_replays;
  rank_options.time_parts = options.time_parts;
  rank_options.kv_dtype = options.kv_dtype;
  rank_options.fault = options.fault;
  rank_options.proof = options.proof;
  std::unique_ptr<const model::RouteTable> routes;
  if (!options.routes.empty()) {
    TRY_ASSIGN(routes, ReadRoutes(options.routes, model, options.backend));
    rank_options.routes = routes.get();
  }
  if (options.proof.on()) {
    TRY(proof::MakeRunDir(options.proof.dir));
    rank_options.group = Hex(Hash128(fmt::format("{} {} {}", options.proof.dir, ::getpid(), NowUs())));
  }
  std::unique_ptr<Engine> engine(new Engine(model, options, std::move(layout), rank_options, std::move(routes)));
  engine->memory_ = std::move(sizes.memory);
  engine->cost_ = std::move(cost);
  TRY(engine->StartRanks(progress));
  return engine;
}

// The groups that a rank is in besides that of all, where it has the place that it has in the layout.
struct Engine::RankGroups {
  plan::RankPlace place;
  comm::Group* stage = nullptr;
  comm::Group* context = nullptr;
};

// The group of all ranks, and those of every rank. The first member of a group makes it.
Result<std::vector<Engine::RankGroups>> Engine::MakeGroups() {
  comm::GroupOptions options;
  options.ranks = layout_.world();
  options.spin = options.ranks <= static_cast<int64_t>(std::thread::hardware_concurrency());
  TRY_ASSIGN(group_, comm::Group::Make(options));
  std::vector<RankGroups> all;
  for (int64_t rank = 0; rank < options.ranks; ++rank) {
    const plan::RankPlace at = layout_.At(rank);
    std::vector<int64_t> stage, context;
    for (int64_t tp = 0; tp < layout_.ranks; ++tp) stage.push_back(layout_.RankAt({tp, at.cp, at.pp, at.dp}));
    for (int64_t cp = 0; cp < layout_.context.ranks; ++cp) context.push_back(layout_.RankAt({at.tp, cp, at.pp, at.dp}));
    RankGroups groups{at};
    if (at.tp == 0) {
      TRY_ASSIGN(groups.stage, group_->MakePart(stage));
    } else {
      groups.stage = all[static_cast<size_t>(stage[0])].stage;
    }
    if (at.cp == 0) {
      TRY_ASSIGN(groups.context, group_->MakePart(context));
    } else {
      groups.context = all[static_cast<size_t>(context[0])].context;
    }
    all.push_back(groups);
  }
  return all;
}

Status Engine::StartRanks(const LoadProgress& progress) {
  const int64_t begin = NowUs();
  TRY_ASSIGN(const std::vector<RankGroups> groups, MakeGroups());
  comm::Group* group = group_.get();
  const auto make = [this, group, groups](int64_t rank, const LoadProgress& shown) {
    const RankGroups& own = groups[static_cast<size_t>(rank)];
    RankComms comms{comm::Communicator(group, rank, options_.fault),
                    comm::Communicator(own.stage, own.place.tp, options_.fault),
                    comm::Communicator(own.context, own.place.cp, options_.fault)};
    return RankWorker::Make(model_, layout_, rank_options_, std::move(comms), shown);
  };
  TRY_ASSIGN(ranks_, Ranks::Start(options_.launch, group, [make, group](int64_t rank) -> Status {
               TRY_ASSIGN(const std::unique_ptr<RankWorker> worker, make(rank, {}));
               TRY(worker->world().Barrier());  // everybody has loaded
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
  TRY(worker_->world().Barrier());
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

Status Engine::Submit(sched::Request request, RuleAt rules) {
  TRY(CheckTokens(request.prompt, model_.geometry.vocab));
  const SeqId id = request.id;
  const size_t replica = ReplicaFor();
  if (replica_of_.contains(id)) {
    return MakeError(Code::kInvalid,
                     fmt::format("request: expected a new id, found {} in use", static_cast<int64_t>(id)));
  }
  if (options_.proof.on()) {
    if (request.logits == sched::LogitsMode::kDrawn) request.logits = sched::LogitsMode::kLast;  // to record them
    NoteRequest(request, replica);
  }
  const bool elsewhere = options_.fault.kind == comm::FaultKind::kOtherReplica;
  const size_t computes = elsewhere ? (replica + 1) % schedulers_.size() : replica;
  TRY(schedulers_[computes].Submit(std::move(request)));
  replica_of_[id] = computes;
  if (rules) rules_.emplace(id, std::move(rules));
  return {};
}

// The replica with the fewest sequences, the lowest of several: requests alone decide, in the order in which they come
// and end.
size_t Engine::ReplicaFor() const {
  std::vector<int64_t> held;
  for (const sched::Scheduler& scheduler : schedulers_) {
    const sched::SchedulerCounts counts = scheduler.counts();
    held.push_back(counts.waiting + counts.running + counts.done);
  }
  return static_cast<size_t>(std::min_element(held.begin(), held.end()) - held.begin());
}

void Engine::Finish(SeqId id) {
  const auto found = replica_of_.find(id);
  CHECK(found != replica_of_.end());
  schedulers_[found->second].Finish(id);
  replica_of_.erase(found);
  rules_.erase(id);
}

const sched::Sequence& Engine::SequenceOf(SeqId id) const { return *schedulers_[replica_of_.at(id)].Find(id); }

sched::SchedulerCounts Engine::counts() const {
  sched::SchedulerCounts counts;
  for (const sched::Scheduler& scheduler : schedulers_) counts += scheduler.counts();
  return counts;
}

std::span<const float> Engine::Hidden(const sched::Span& span, size_t layer) const {
  const auto width = static_cast<size_t>(model_.geometry.hidden);
  const size_t row = layer * joint_.plans[shown_].tokens.size() + static_cast<size_t>(span.token_begin);
  return std::span(hidden_[shown_]).subspan(row * width, static_cast<size_t>(span.count) * width);
}

void Engine::NoteRequest(const sched::Request& request, size_t replica) {
  RecordedRequest noted{request.id, request.prompt, {}, 0, 0, static_cast<int64_t>(replica)};
  const auto ordinal = static_cast<size_t>(request.id);
  const std::vector<int64_t>& from = options_.proof.logits_from;
  if (request.logits == sched::LogitsMode::kLast) noted.logits_from = static_cast<int64_t>(request.prompt.size()) - 1;
  if (ordinal < from.size()) noted.logits_from = std::max(noted.logits_from, from[ordinal]);
  requests_.push_back(std::move(noted));
}

Status Engine::CheckRange() const {
  const uint32_t flags = worker_->range_flags();
  if ((flags & kernels::kNonFinite) != 0) {
    return MakeError(Code::kInvalid,
                     "activations: expected finite numbers, found an infinity or a NaN; the checkpoint is "
                     "damaged or not of this family");
  }
  if ((flags & kernels::kSaturated) != 0 && options_.strict) {
    return MakeError(
        Code::kInvalid,
        fmt::format("sums: expected parts below {} in magnitude, found a larger one; {}run without --strict",
                    kernels::kLeafLimit, options_.backend == Backend::kCpu ? "use --numerics fast, or " : ""));
  }
  return {};
}

// A choice belongs to a token at a place. Forced on another one, it would prove nothing.
Status Engine::CheckForced(const sched::StepPlan& plan) const {
  if (routes_ == nullptr) return {};
  for (const sched::Span& span : plan.spans) {
    for (int32_t i = 0; i < span.count; ++i) {
      const int64_t request = static_cast<int64_t>(span.seq), position = int64_t{span.start} + i;
      const TokenId token = plan.tokens[static_cast<size_t>(span.token_begin + i)];
      const std::optional<int32_t> wanted = routes_->TokenAt(request, position);
      if (!wanted || *wanted == token) continue;
      return MakeError(Code::kInvalid,
                       fmt::format("{}: request {}, position {}: expected token {}, for which it has experts, found "
                                   "{}; give the tokens that were recorded, or no --routes",
                                   options_.routes, request, position, *wanted, token));
    }
  }
  return {};
}

std::optional<model::ForcedCounts> Engine::forced() const {
  return routes_ == nullptr ? std::nullopt : std::optional(worker_->forced());
}

Result<bool> Engine::Step(const SpanSink& sink, const SpanPreview& preview) {
  if (failure_) return *failure_;
  Result<bool> stepped = RunStep(sink, preview);
  if (!stepped.ok()) failure_ = stepped.error();
  return stepped;
}

Status Engine::Watch() {
  if (failure_) return *failure_;
  ranks_->Watch();
  if (group_->aborted()) failure_ = group_->AbortError();
  return failure_ ? Status(*failure_) : Status();
}

Result<bool> Engine::RunStep(const SpanSink& sink, const SpanPreview& preview) {
  const int64_t begin = NowUs();
  joint_.plans.clear();
  step_tokens_ = 0;
  for (sched::Scheduler& scheduler : schedulers_) {
    joint_.plans.push_back(scheduler.Next());
    SetRules(&joint_.plans.back());
    step_tokens_ += static_cast<int64_t>(joint_.plans.back().tokens.size());
  }
  times_.schedule_us += NowUs() - begin;
  if (step_tokens_ == 0) return false;
  for (const sched::StepPlan& plan : joint_.plans) TRY(CheckForced(plan));
  TRY(Compute());
  for (shown_ = 0; shown_ < schedulers_.size(); ++shown_) {
    const sched::StepPlan& plan = joint_.plans[shown_];
    if (plan.spans.empty()) continue;
    TRY_ASSIGN(const std::vector<sched::SampledToken> sampled, Sample(sink, preview));
    const int64_t looked = NowUs();
    if (options_.proof.on()) NoteStep(plan, sampled);
    schedulers_[shown_].Commit(plan, sampled);
    times_.schedule_us += NowUs() - looked;
  }
  return true;
}

// Sets how the step's tokens are drawn, each at the position behind its span.
void Engine::SetRules(sched::StepPlan* plan) const {
  for (const sched::Span& span : plan->spans) {
    const std::optional<size_t> row = plan->DrawnOf(span);
    const auto rules = rules_.find(span.seq);
    if (row && rules != rules_.end()) plan->rules[*row] = rules->second(int64_t{span.start} + span.count);
  }
}

// Runs the step on all ranks.
Status Engine::Compute() {
  const int64_t planned = NowUs();
  const plan::Geometry& geometry = model_.geometry;
  const size_t width = joint_.hidden ? geometry.layers.size() * static_cast<size_t>(geometry.hidden) : 0;
  std::vector<model::StepOutput> outputs;
  for (size_t replica = 0; replica < joint_.plans.size(); ++replica) {
    const sched::StepPlan& plan = joint_.plans[replica];
    logits_[replica].resize(static_cast<size_t>(plan.logits_rows * geometry.vocab));
    hidden_[replica].resize(plan.tokens.size() * width);
    drawn_[replica].resize(plan.drawn.size());
    outputs.push_back({logits_[replica], hidden_[replica], drawn_[replica]});
    times_.logits_rows += plan.logits_rows;
    times_.drawn_rows += static_cast<int64_t>(plan.drawn.size());
  }
  TRY(worker_->Announce(&joint_));
  const Status ran = worker_->RunStep(joint_, outputs);
  if (!ran.ok()) {
    group_->Abort(ran.error().message, ran.error().code);
    return ran.error();
  }
  times_.forward_us += NowUs() - planned;
  times_.collective_us.resize(static_cast<size_t>(layout_.world()));
  for (int64_t rank = 0; rank < layout_.world(); ++rank) {
    times_.collective_us[static_cast<size_t>(rank)] = group_->collective_us(rank).load(std::memory_order_relaxed);
  }
  return CheckRange();
}

// Shows what came of replica shown_'s spans, and gives the tokens that come of it.
Result<std::vector<sched::SampledToken>> Engine::Sample(const SpanSink& sink, const SpanPreview& preview) {
  const int64_t vocab = model_.geometry.vocab, computed = NowUs();
  const sched::StepPlan& plan = joint_.plans[shown_];
  std::vector<ShownSpan> all;
  for (const sched::Span& span : plan.spans) {
    SpanOutput output;
    if (const std::optional<size_t> row = plan.DrawnOf(span)) {
      const uint64_t key = drawn_[shown_][*row];
      CHECK(key != 0);  // some rank has a token
      output.drawn = {kernels::ArgmaxToken(key), kernels::ArgmaxLogit(key)};
    } else if (span.logits_count > 0) {
      output.logits = {logits_[shown_].data() + span.logits_begin * vocab,
                       static_cast<size_t>(span.logits_count * vocab)};
    } else {
      continue;
    }
    all.push_back({&span, output, schedulers_[shown_].WantsToken(span)});
  }
  if (preview) preview(all);
  const int64_t previewed = NowUs();
  std::vector<sched::SampledToken> sampled;
  for (const ShownSpan& shown : all) {
    const bool wanted = schedulers_[shown_].WantsToken(*shown.span);  // a sink may have ended it meanwhile
    TRY_ASSIGN(const std::optional<TokenId> token, sink(*shown.span, shown.output, wanted));
    if (!wanted) continue;
    CHECK(token.has_value());
    sampled.push_back({shown.span->seq, *token});
  }
  times_.sample_us += previewed - computed;
  times_.deliver_us += NowUs() - previewed;
  return sampled;
}

// What a step that ran brought its requests.
void Engine::NoteStep(const sched::StepPlan& plan, const std::vector<sched::SampledToken>& sampled) {
  for (RecordedRequest& request : requests_) {
    for (const sched::Span& span : plan.spans) {
      if (span.seq == request.id) request.computed = std::max<int64_t>(request.computed, span.start + span.count);
    }
    for (const sched::SampledToken& token : sampled) {
      if (token.seq == request.id) request.sampled.push_back(token.token);
    }
  }
}

std::vector<proof::Knob> Engine::Knobs() const {
  return ReadKnobs({options_, rank_options_, model_, layout_, schedulers_, *worker_, *ranks_});
}

Status Engine::SealProof() {
  if (!options_.proof.on()) return {};
  if (failure_) return *failure_;
  failure_ = MakeError(Code::kUsage, "engine: expected no step after the run was sealed, found one");
  TRY(worker_->WriteEvidence());
  ThreadPool pool(static_cast<int>(layout_.ranks) * rank_options_.threads);  // those of all ranks, which wait
  TRY_ASSIGN(Json identity, IdentityJson(model_, worker_->Contract(), &pool));
  const plan::Placement placement = GroupsOf(model_.geometry, layout_).placement;
  proof::Files files;
  Json versions = Json::array();
  if (placement.experts() > 0) {
    versions.push_back(placement.version);
    files["placement/0.json"] = proof::JsonText(placement.PlanFragment());
  }
  Json knobs = Json::array();
  for (const proof::Knob& knob : Knobs()) knobs.push_back(proof::KnobJson(knob, proof::StatusOf(knob)));
  Json run = {{"schema", "trivet.run.v1"},
              {"group", rank_options_.group},
              {"command", options_.proof.command},
              {"model", model_.name},
              {"level", record::LevelName(options_.proof.level)},
              {"identity", std::move(identity)},
              {"router", RouterJson(model_.geometry)},
              {"delta_net", DeltaNetJson(model_.geometry)},
              {"layers", model_.geometry.layers.size()},
              {"hidden", model_.geometry.hidden},
              {"vocab", model_.geometry.vocab},
              {"placement", versions},
              {"requests", RequestsJson(requests_)},
              {"knobs", knobs},
              {"claims", proof::ClaimsOf(options_.proof.level)}};
  if (routes_ != nullptr) {
    run["routes"] = {{"content", Hex(routes_->content)}, {"forced", forced()->decisions}, {"other", forced()->other}};
  }
  files["run.json"] = proof::JsonText(run);
  files["layout.json"] = proof::JsonText(RecordedLayout(model_.geometry, layout_, rank_options_.group, requests_));
  TRY(proof::WriteFiles(options_.proof.dir, files));
  return proof::SealRunDir(options_.proof.dir);
}

}  // namespace trivet::engine
