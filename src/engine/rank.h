// SPDX-License-Identifier: Apache-2.0
// One rank at work: it owns its shard, caches, scratch and threads, and runs the steps it is told.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/caches.h"
#include "comm/communicator.h"
#include "engine/load.h"
#include "engine/open_model.h"
#include "kernels/registry.h"
#include "model/model.h"
#include "plan/layout.h"
#include "record/sites.h"
#include "sched/scheduler.h"

namespace trivet::engine {

/// What every rank is told before it starts; the same on all.
struct RankOptions {
  int threads = 1;  // of this rank
  Backend backend = Backend::kCpu;
  kernels::KernelOptions kernels;
  kernels::Numerics numerics = kernels::Numerics::kExact;
  sched::SchedulerLimits limits;
  comm::Transport transport = comm::Transport::kAuto;
  comm::Fault fault;
  bool sites = false;  // keep digests of every step
};

/// The largest step within `limits`.
model::StepSize StepSizeOf(const sched::SchedulerLimits& limits);

/// What kernel rows may need on `device`.
kernels::Target TargetOf(const device::Device& device);

/// The worker of one rank. Everything mutable in it belongs to the thread that runs it.
class RankWorker {
 public:
  /// Loads the rank's shard and makes its caches.
  ///   progress  may be empty
  /// Errors:  those of loading; kCapacity.
  static Result<std::unique_ptr<RankWorker>> Make(const OpenedModel& model, const plan::Layout& layout,
                                                  const RankOptions& options, comm::Communicator comm,
                                                  const LoadProgress& progress);

  /// Runs one step. With `sites`, ranks compare their digests afterwards.
  ///   output  see model::StepOutput
  /// Ranks:   collective.
  /// Errors:  kPeer, also naming rank and site where the ranks' digests differ first.
  Status RunStep(const sched::StepPlan& plan, const model::StepOutput& output);

  /// Ranks other than 0: runs the steps that rank 0 broadcasts until it says stop.  Errors: kPeer.
  Status Serve();

  /// Rank 0: tells the others what comes, a step or, with null, the end.  Errors: kPeer.
  Status Announce(const sched::StepPlan* plan);

  comm::Communicator& comm() { return comm_; }
  const record::SiteLog& sites() const { return sites_; }
  /// kernels::RangeFlags that any rank has met so far, as of the last step with logits.
  uint32_t range_flags() const { return comm_.AnyReport(); }
  int64_t weight_bytes() const { return model_->weights().bytes(); }
  const kernels::Kernels& kernels() const { return kernels_; }
  const device::Device& device() const { return device_; }

 private:
  RankWorker(const OpenedModel& model, const plan::Layout& layout, const RankOptions& options, comm::Communicator comm);
  Status Prepare(const LoadProgress& progress);
  Status CompareSites(size_t first);
  // Sites of a step whose digests ranks compare.
  size_t ComparedSites() const { return 1 + 2 * opened_.geometry.layers.size(); }

  const RankOptions options_;
  comm::Communicator comm_;
  ThreadPool pool_;
  device::Device device_;
  kernels::Kernels kernels_;
  model::Tables tables_;
  device::Workspace workspace_;
  cache::Caches caches_;
  record::SiteLog sites_;
  device::Buffer digests_;  // of all ranks, while they are compared
  const OpenedModel& opened_;
  const plan::Layout& layout_;
  std::unique_ptr<model::Model> model_;
  int64_t steps_ = 0;
};

}  // namespace trivet::engine
