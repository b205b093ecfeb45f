// SPDX-License-Identifier: Apache-2.0
#include "engine/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>

namespace trivet::engine {
namespace {

static_assert(sched::kPageTokens == cache::kPageTokens && sched::kPageTokens == kernels::kBlockKeys,
              "a page is what the scheduler counts, the cache holds and attention visits");

constexpr std::byte kStep{1}, kStop{0};

// Ends its leaves in the middle: the planted fault of a kernel that splits K by a heuristic.
void SplitLeaves(model::LoadedTensors* tensors) {
  for (auto& [name, tensor] : *tensors) {
    if (tensor.role == plan::Role::kMatrix && tensor.leaf >= 4) tensor.leaf /= 2;
  }
}

}  // namespace

RankWorker::RankWorker(const OpenedModel& model, const plan::Layout& layout, const RankOptions& options,
                       const comm::Communicator& comm, device::Workspace workspace)
    : options_(options),
      comm_(comm),
      pool_(options.threads),
      workspace_(std::move(workspace)),
      opened_(model),
      layout_(layout) {}

Result<std::unique_ptr<RankWorker>> RankWorker::Make(const OpenedModel& model, const plan::Layout& layout,
                                                     const RankOptions& options, const comm::Communicator& comm,
                                                     const LoadProgress& progress) {
  const int64_t rank = comm.rank();
  const plan::RankShard& shard = layout.shards[static_cast<size_t>(rank)];
  const int64_t scratch = model::Model::WorkspaceBytes(model.geometry, shard, options.limits.max_step_tokens,
                                                       options.limits.max_logits_rows);
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(scratch, "scratch memory"));
  std::unique_ptr<RankWorker> worker(
      new RankWorker(model, layout, options, comm, device::Workspace(std::move(buffer))));
  TRY_ASSIGN(worker->caches_, cache::Caches::Make(model.geometry, shard,
                                                  {options.limits.pages, options.limits.max_sequences}));
  const plan::ShardMap map = plan::MakeShardMap(model.geometry, layout, rank, model.names);
  TRY_ASSIGN(model::LoadedTensors tensors, LoadShard(model.checkpoint, map, progress, worker->comm_.tick()));
  if (options.fault.Hits(comm::FaultKind::kSplitK, rank)) SplitLeaves(&tensors);
  const model::Runtime runtime{model.geometry,     layout,           shard,           worker->options_.kernels,
                               options.numerics,   worker->comm_,    worker->pool_,   worker->workspace_,
                               worker->caches_,    options.sites ? &worker->sites_ : nullptr, &worker->range_flags_};
  worker->model_ = std::make_unique<model::Model>(
      runtime, model::Weights::Bind(model.geometry, shard, std::move(tensors)));
  return worker;
}

Status RankWorker::RunStep(const sched::StepPlan& plan, const model::StepOutput& output) {
  const int64_t step = steps_++;
  if (step == options_.fault.step) {
    if (options_.fault.Hits(comm::FaultKind::kDie, comm_.rank())) {
      return MakeError(Code::kPeer, fmt::format("rank {}: expected to run, found a planted fault; restart without "
                                                "--fault", comm_.rank()));
    }
    // Shows no progress until the others have given it up.
    while (options_.fault.Hits(comm::FaultKind::kHang, comm_.rank()) && !comm_.aborted()) ::usleep(1000);
  }
  std::vector<kernels::TokenSpan> spans;
  std::vector<int32_t> rows;
  for (const sched::Span& span : plan.spans) {
    spans.push_back({span.token_begin, span.count, span.start, span.state_slot, plan.pages.data() + span.page_begin});
    for (int32_t i = span.count - span.logits_count; i < span.count; ++i) rows.push_back(span.token_begin + i);
  }
  return model_->Forward({plan.tokens, spans, rows}, output);
}

Status RankWorker::Announce(const sched::StepPlan* plan) {
  std::vector<std::byte> message{plan == nullptr ? kStop : kStep};
  if (plan != nullptr) {
    const std::vector<std::byte> bytes = plan->Serialize();
    message.insert(message.end(), bytes.begin(), bytes.end());
  }
  const Result<std::vector<std::byte>> sent = comm_.Broadcast(message, true);
  return sent.ok() ? Status() : Status(sent.error());
}

Status RankWorker::Serve() {
  while (true) {
    TRY_ASSIGN(const std::vector<std::byte> message, comm_.Broadcast({}, true));
    if (message.empty() || message[0] == kStop) return {};
    TRY_ASSIGN(const sched::StepPlan plan, sched::StepPlan::Deserialize(std::span(message).subspan(1)));
    TRY(RunStep(plan, {}));
  }
}

}  // namespace trivet::engine
