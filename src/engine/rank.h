// SPDX-License-Identifier: Apache-2.0
// One rank at work: it owns its shard, caches, scratch and threads, and runs the steps it is told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/caches.h"
#include "comm/communicator.h"
#include "engine/evidence.h"
#include "engine/joint_step.h"
#include "engine/load.h"
#include "engine/open_model.h"
#include "engine/step_share.h"
#include "kernels/registry.h"
#include "model/model.h"
#include "plan/layout.h"
#include "record/run_log.h"
#include "sched/scheduler.h"

namespace trivet::engine {

/// What every rank is told before it starts; the same on all.
struct RankOptions {
  int threads = 1;  // of this rank
  Backend backend = Backend::kCpu;
  kernels::KernelOptions kernels;
  kernels::Numerics numerics = kernels::Numerics::kExact;
  sched::SchedulerLimits limits;
  cache::KvDtype kv_dtype = cache::KvDtype::kF32;
  comm::Transport transport = comm::Transport::kAuto;
  comm::Tuning tuning;
  bool compress_sums = false;
  bool time_replays = false, time_parts = false;
  comm::Fault fault;
  ProofOptions proof;
  const model::RouteTable* routes = nullptr;  // choices of experts that are forced, when asked for
  std::string group;                          // the run's name, for what it records
};

/// A rank's ends of its groups.
struct RankComms {
  comm::Communicator world;    // all ranks
  comm::Communicator stage;    // those that cut its layers between them
  comm::Communicator context;  // those that hold the same and share out the positions of sequences
};

/// The largest step of `layout` within `limits`.
model::StepSize StepSizeOf(const plan::Layout& layout, const sched::SchedulerLimits& limits);

/// What kernel rows may need on `device`.
kernels::Target TargetOf(const device::Device& device);

/// The worker of one rank. Everything mutable in it belongs to the thread that runs it.
class RankWorker {
 public:
  /// Loads the rank's shard and makes its caches.
  ///   progress  may be empty
  /// Errors:  those of loading; kCapacity.
  static Result<std::unique_ptr<RankWorker>> Make(const OpenedModel& model, const plan::Layout& layout,
                                                  const RankOptions& options, RankComms comms,
                                                  const LoadProgress& progress);

  /// Runs its replica's part of a step, and brings what all replicas computed to rank 0.
  ///   outputs  rank 0: by replica, [L, V], where hidden states are wanted [layers][T, H], and [G]; others: empty
  /// Ranks:   collective.
  /// Errors:  kPeer.
  Status RunStep(const JointStep& step, std::span<const model::StepOutput> outputs);

  /// Ranks other than 0: runs the steps that rank 0 broadcasts until it says stop.  Errors: kPeer.
  Status Serve();

  /// Rank 0: tells the others what comes, a step or, with null, the end.  Errors: kPeer.
  Status Announce(const JointStep* step);

  /// Writes what this rank recorded into the run's folder. Rank 0 makes the others do the same.
  /// Ranks:   collective.
  /// Errors:  kIo; those of loading, since experts are read once more; kPeer.
  Status WriteEvidence();

  /// Of all ranks.
  comm::Communicator& world() { return comms_.world; }
  /// Of the ranks that cut its layers between them.
  comm::Communicator& stage() { return comms_.stage; }
  /// Of the ranks of its context group.
  comm::Communicator& context() { return comms_.context; }
  /// By what its ranks share out rows.
  const plan::RowSplit& rows() const { return rows_; }
  /// Rank 0: what was forced in all stages of all replicas, as of the last step.
  const model::ForcedCounts& forced() const { return forced_counts_; }
  /// What this rank has recorded; null when nothing is.
  const record::RunLog* log() const { return log_.get(); }
  /// kernels::RangeFlags that any rank has met so far, as of the last step with logits.
  uint32_t range_flags() const { return comms_.world.AnyReport(); }
  /// As Engine::TakeReplayGaps.
  std::vector<double> TakeReplayGaps() { return model_->TakeReplayGaps(); }
  /// As Engine::TakePartTimes.
  std::vector<model::PartTimes> TakePartTimes() { return model_->TakePartTimes(); }
  int64_t weight_bytes() const { return model_->weights().bytes(); }
  const kernels::Kernels& kernels() const { return kernels_; }
  int threads() const { return pool_.size(); }
  /// Calls body for every item of [0, count) on this rank's threads; between steps.
  void ParallelFor(int64_t count, const std::function<void(int64_t)>& body);
  /// The name of the arithmetic of the rows that run.
  std::string Contract() const {
    return ContractId(options_.numerics, options_.backend, kernels_, device_.level(), kv_dtype()) +
           (options_.compress_sums ? "/wht6" : "");
  }
  cache::KvDtype kv_dtype() const { return caches_.kv_dtype(); }
  const device::Device& device() const { return device_; }

 private:
  RankWorker(const OpenedModel& model, const plan::Layout& layout, const RankOptions& options, RankComms comms);
  Status Prepare(const LoadProgress& progress);
  Status CommitFault(int64_t step);
  bool RoundsHandedRows() const;
  // A step by whose its rows are.
  struct Shares {
    sched::StepPlan computed, kept;  // by this rank
    StepShares computers, keepers;   // of the whole step; of what this rank computes
  };
  Shares SharesOfStep(const sched::StepPlan& plan) const;
  model::StepOutput OwnOutput(const JointStep& step, const Shares& shares, std::span<const model::StepOutput> outputs);
  Status Compute(const sched::StepPlan& plan, const Shares& shares, const model::StepOutput& output);
  Status Collect(const JointStep& step, std::span<const model::StepOutput> outputs, const model::StepOutput& own);
  Status CollectHidden(int64_t replica, std::span<const comm::RowRun> runs, std::span<float> all, std::span<float> own);
  Status CollectRows(std::span<const comm::RowRun> runs, plan::RankPlace from, int64_t width, std::span<float> all,
                     std::span<float> own);
  Status CollectForced();
  std::vector<int64_t> LogitsTokens(const sched::StepPlan& plan) const;
  void BeginLog(const Shares& shares);
  Json Environment() const;

  const RankOptions options_;
  RankComms comms_;
  ThreadPool pool_;
  device::Device device_;
  kernels::Kernels kernels_;
  model::Tables tables_;
  device::Workspace workspace_;
  cache::Caches caches_;
  std::unique_ptr<record::RunLog> log_;
  std::unique_ptr<model::ForcedRoutes> forced_;
  model::ForcedCounts forced_counts_;
  const OpenedModel& opened_;
  const plan::Layout& layout_;
  const plan::RankPlace place_;
  const plan::RowSplit rows_;  // by which this rank shares out rows
  const Owner computer_, keeper_;
  const plan::RankShard& shard_;
  std::unique_ptr<model::Model> model_;
  std::vector<float> logits_, hidden_;  // on their way to rank 0
  std::vector<uint64_t> drawn_;         // these, too
  int64_t steps_ = 0;
};

}  // namespace trivet::engine
