// SPDX-License-Identifier: Apache-2.0
// The front door: a loaded model on N ranks that takes requests and runs steps.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/launch.h"
#include "engine/open_model.h"
#include "engine/rank.h"
#include "plan/cost.h"
#include "plan/layout.h"
#include "plan/memory_plan.h"
#include "proof/knobs.h"
#include "sampling/sampler.h"
#include "sched/scheduler.h"

namespace trivet::engine {

/// How to run a model. Zeros mean: choose.
struct EngineOptions {
  plan::LayoutOptions layout;
  Launch launch = Launch::kThreads;
  int64_t threads = 0;  // per rank; 0: the machine's cores shared out evenly, at least one
  Backend backend = Backend::kCpu;
  kernels::Numerics numerics = kernels::Numerics::kExact;
  kernels::KernelOptions kernels;
  int64_t max_context = 0;       // tokens; 0: what the model was made for
  int64_t max_sequences = 32;    // running at once in each replica
  int64_t prefill_chunk = 512;   // tokens of one prompt in one step
  int64_t prefill_budget = 0;    // prompt tokens of all sequences in a step with decoders; 0: by their work
  double memory_fraction = 0.8;  // of the memory that the machine has available, for all ranks together
  int64_t snapshot_slots = -1;   // states kept for the prefix cache; -1: as memory allows, at most 2 max_sequences
  int64_t kv_tokens = 0;  // capacity of a replica's KV cache; 0: max_sequences times max_context, as memory allows
  cache::KvDtype kv_dtype = cache::KvDtype::kF32;
  bool prefix_cache = false;  // prompts that begin as earlier ones do are computed from where they part
  comm::Transport transport = comm::Transport::kAuto;  // between ranks on GPUs
  comm::Tuning tuning;                                 // where the forms of their sums cross
  bool compress_sums = false;                          // fast numerics: parts travel in 6.25 bits a value
  comm::Fault fault;
  std::string routes;  // file of choices of experts that are forced (engine/routes.h); empty: none
  ProofOptions proof;
  bool time_replays = false;  // measure how long rank 0's GPU waits between recorded steps
  bool time_parts = false;    // time the parts of decode steps, which are not recorded then
  bool strict = false;        // a saturated sum is an error instead of a notice
};

/// Time of loading and of the steps so far, and what these handed out.
struct EngineTimes {
  double load_s = 0;
  int64_t weight_bytes = 0;            // resident on rank 0
  int64_t schedule_us = 0;             // making step plans and moving sequences on, all steps
  int64_t forward_us = 0;              // announcing steps and running them on all ranks, all steps
  int64_t sample_us = 0;               // in the SpanPreview: from logits to tokens, all steps
  int64_t deliver_us = 0;              // in the SpanSink: from tokens to texts and those who read them, all steps
  int64_t logits_rows = 0;             // whole rows of logits
  int64_t drawn_rows = 0;              // rows of which only a token came
  std::vector<int64_t> collective_us;  // of forward_us, by rank: exchanging with others, waiting for them included
};

/// What a step computed for the last rows of one span. Exactly one of the two.
struct SpanOutput {
  std::span<const float> logits;              // [logits_count, V] float32, valid during the call
  std::optional<sampling::TokenLogit> drawn;  // for sampling::TokenOf: where sched::LogitsMode::kDrawn was asked for,
                                              // unless the run is recorded, and so are its logits
};

/// Looks at what came of one span and gives the sequence's next token when one is wanted.
///   wanted  whether a token is wanted
using SpanSink =
    std::function<Result<std::optional<TokenId>>(const sched::Span& span, const SpanOutput& output, bool wanted)>;

/// What a SpanSink is given of one span.
struct ShownSpan {
  const sched::Span* span = nullptr;
  SpanOutput output;
  bool wanted = false;
};

/// Looks at everything that a replica's step brought, before the sink is given span after span: what many sequences
/// can have done at once (Engine::ParallelFor).
using SpanPreview = std::function<void(std::span<const ShownSpan>)>;

/// The rule by which the token at a position of a sequence is drawn.
using RuleAt = std::function<DrawRule(int64_t position)>;

/// A model on N ranks. One thread uses it.
class Engine {
 public:
  /// Plans, starts ranks, loads their shards.
  ///   model     outlives the engine
  ///   progress  called on this thread with rank 0's bytes; may be empty
  /// Errors:  those of planning and loading; kPeer with the cause when another rank failed.
  static Result<std::unique_ptr<Engine>> Start(const OpenedModel& model, const EngineOptions& options,
                                               const LoadProgress& progress);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Queues a request.
  ///   rules    for sched::LogitsMode::kDrawn; empty: the best token everywhere
  /// Errors:    kCapacity with the numbers when it cannot fit.
  Status Submit(sched::Request request, RuleAt rules = {});
  /// Ends a sequence.
  void Finish(SeqId id);

  /// Tokens of the sequence's prompt that were found in the prefix cache; it must exist.
  int64_t CachedTokens(SeqId id) const { return SequenceOf(id).cached_tokens; }

  /// Runs one step of every replica that has something to do, hands what it gives to `preview`, which may be empty, and
  /// to `sink`, replica after replica, and moves the sequences on. False when there was nothing to do. Errors:  kPeer
  /// with the cause; kInvalid when activations left the range of numbers; those of `sink`. The engine is
  ///          then at its end: every later call returns the same error.
  Result<bool> Step(const SpanSink& sink, const SpanPreview& preview = {});

  /// Calls body for every item of [0, count) on rank 0's threads; inside a preview or a sink, when they have nothing
  /// else to do.
  void ParallelFor(int64_t count, const std::function<void(int64_t)>& body) { worker_->ParallelFor(count, body); }

  /// Writes and seals what was recorded, when options ask for it. The run is then over: no step follows.
  /// Errors:  kIo; kPeer. Without this call, or after an error, the folder has no seal.
  Status SealProof();

  /// The settings, read back from the objects that run.
  std::vector<proof::Knob> Knobs() const;

  /// Looks after the ranks while there is nothing to do.  Errors: as Step, when one of them has died.
  Status Watch();

  /// Whether the sequence has been given a place in the batch; it must exist.
  bool Begun(SeqId id) const { return SequenceOf(id).status != sched::SequenceStatus::kWaiting; }

  /// Tokens of the last step, of all replicas.
  int64_t step_tokens() const { return step_tokens_; }

  /// Where time_replays asks for it: how long rank 0's GPU waited between one recorded step and the next, of all steps
  /// since the last call.  Units: microseconds.
  std::vector<double> TakeReplayGaps() { return worker_->TakeReplayGaps(); }

  /// Where time_parts asks for it: microseconds of the parts of every decode step on rank 0, of all steps since the
  /// last call. They are those of its own stage.
  std::vector<model::PartTimes> TakePartTimes() { return worker_->TakePartTimes(); }

  /// Asks for the hidden states after every block; read them inside the sink.
  void KeepHidden() { joint_.hidden = true; }
  /// Of the span that the sink is given, after block `layer`: [count, H] float32.
  std::span<const float> Hidden(const sched::Span& span, size_t layer) const;

  const OpenedModel& model() const { return model_; }
  const plan::Layout& layout() const { return layout_; }
  const EngineTimes& times() const { return times_; }
  const plan::MemoryPlan& memory() const { return memory_; }
  /// Of the layout.
  const plan::LayoutCost& cost() const { return cost_; }
  const RankOptions& rank_options() const { return rank_options_; }
  /// Of every replica.
  const sched::SchedulerLimits& limits() const { return schedulers_[0].limits(); }
  /// Of all replicas together.
  sched::SchedulerCounts counts() const;
  /// What --routes forced so far; nothing without it.
  std::optional<model::ForcedCounts> forced() const;
  /// Rank 0's device, of the thread that started the engine.
  const device::Device& device() const { return worker_->device(); }
  /// Why ranks on GPUs exchange through the host; empty when they do not.
  const std::string& detour() const { return worker_->stage().detour(); }
  /// The rows that rank 0 runs.
  const kernels::Kernels& kernels() const { return worker_->kernels(); }
  /// Whether a contribution saturated in a step so far.
  bool saturated() const { return (worker_->range_flags() & kernels::kSaturated) != 0; }

 private:
  Engine(const OpenedModel& model, const EngineOptions& options, plan::Layout layout, RankOptions rank_options,
         std::unique_ptr<const model::RouteTable> routes);
  struct RankGroups;
  Result<std::vector<RankGroups>> MakeGroups();
  Status StartRanks(const LoadProgress& progress);
  Result<bool> RunStep(const SpanSink& sink, const SpanPreview& preview);
  void SetRules(sched::StepPlan* plan) const;
  Status Compute();
  Result<std::vector<sched::SampledToken>> Sample(const SpanSink& sink, const SpanPreview& preview);
  Status CheckRange() const;
  Status CheckForced(const sched::StepPlan& plan) const;
  void NoteRequest(const sched::Request& request, size_t replica);
  void NoteStep(const sched::StepPlan& plan, const std::vector<sched::SampledToken>& sampled);
  size_t ReplicaFor() const;
  const sched::Sequence& SequenceOf(SeqId id) const;

  const OpenedModel& model_;
  const EngineOptions options_;
  const plan::Layout layout_;
  const std::unique_ptr<const model::RouteTable> routes_;
  const RankOptions rank_options_;
  std::deque<sched::Scheduler> schedulers_;  // by replica; they never move
  std::map<SeqId, size_t> replica_of_;       // of every sequence that has not been finished
  std::map<SeqId, RuleAt> rules_;            // of those that have rules
  std::unique_ptr<comm::Group> group_;       // of all ranks
  std::unique_ptr<Ranks> ranks_;
  std::unique_ptr<RankWorker> worker_;               // rank 0's
  JointStep joint_;                                  // the current step
  std::vector<std::vector<float>> logits_, hidden_;  // by replica
  std::vector<std::vector<uint64_t>> drawn_;         // by replica
  size_t shown_ = 0;                                 // the replica whose output the sink is given
  int64_t step_tokens_ = 0;
  std::optional<Error> failure_;           // of the step that failed
  std::vector<RecordedRequest> requests_;  // in order of submission, when they are recorded
  EngineTimes times_;
  plan::MemoryPlan memory_;
  plan::LayoutCost cost_;
};

}  // namespace trivet::engine
