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

// Ends its leaves in the middle: the planted fault of a kernel that splits K by a heuristic. Leaves stay even.
void SplitLeaves(model::LoadedTensors* tensors) {
  for (auto& [name, tensor] : *tensors) {
    if (tensor.role == plan::Role::kMatrix && tensor.leaf % 4 == 0) tensor.leaf /= 2;
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
  TRY_ASSIGN(worker->caches_,
             cache::Caches::Make(model.geometry, shard,
                                 {options.limits.pages, options.limits.max_sequences + options.limits.snapshots,
                                  options.limits.prefill_chunk, options.limits.max_context}));
  const plan::ShardMap map = plan::MakeShardMap(model.geometry, layout, rank, model.names);
  // Others judge this rank by its progress, and their end is its end.
  const auto check = [&own = worker->comm_]() -> Status {
    own.tick()->fetch_add(1, std::memory_order_relaxed);
    if (!own.aborted()) return {};
    return MakeError(Code::kPeer,
                     fmt::format("rank {}: expected all ranks to load, found that one failed", own.rank()));
  };
  TRY_ASSIGN(model::LoadedTensors tensors, LoadShard(model, map, &worker->pool_, progress, check));
  if (options.fault.Hits(comm::FaultKind::kSplitK, rank)) SplitLeaves(&tensors);
  const model::Runtime runtime{model.geometry,
                               layout,
                               shard,
                               worker->options_.kernels,
                               options.numerics,
                               worker->comm_,
                               worker->pool_,
                               worker->workspace_,
                               worker->caches_,
                               options.sites ? &worker->sites_ : nullptr,
                               &worker->range_flags_};
  worker->model_ =
      std::make_unique<model::Model>(runtime, model::Weights::Bind(model.geometry, shard, std::move(tensors)));
  return worker;
}

Status RankWorker::RunStep(const sched::StepPlan& plan, const model::StepOutput& output) {
  const int64_t step = steps_++;
  if (step == options_.fault.step) {
    if (options_.fault.Hits(comm::FaultKind::kDie, comm_.rank())) {
      return MakeError(Code::kPeer, fmt::format("rank {}: expected to run, found a planted fault; restart without "
                                                "--fault",
                                                comm_.rank()));
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
  const size_t first_site = sites_.digests().size();
  for (const sched::StateCopy& copy : plan.restores) caches_.CopyState(copy.from, copy.to);
  TRY(model_->Forward({plan.tokens, spans, rows}, output));
  for (const sched::StateCopy& copy : plan.saves) caches_.CopyState(copy.from, copy.to);
  return options_.sites && comm_.size() > 1 ? CompareSites(first_site) : Status();
}

Status RankWorker::CompareSites(size_t first) {
  std::span<const record::SiteDigest> sites = std::span(sites_.digests()).subspan(first);
  // The last site is that of the logits, which only rank 0 has.
  const size_t count = 1 + 2 * opened_.geometry.layers.size();
  CHECK(sites.size() >= count);
  sites = sites.first(count);
  // Every rank's digests in a place of their own, zeros elsewhere: the sum brings them to all.
  std::vector<uint32_t> words(static_cast<size_t>(comm_.size()) * count * 2);
  const size_t own = static_cast<size_t>(comm_.rank()) * count * 2;
  for (size_t i = 0; i < count; ++i) {
    words[own + 2 * i] = static_cast<uint32_t>(sites[i].digest);
    words[own + 2 * i + 1] = static_cast<uint32_t>(sites[i].digest >> 32);
  }
  TRY(comm_.AllReduce(std::span(words)));
  for (size_t i = 0; i < count; ++i) {
    const auto digest = [&](int64_t rank) {
      const size_t at = (static_cast<size_t>(rank) * count + i) * 2;
      return static_cast<uint64_t>(words[at + 1]) << 32 | words[at];
    };
    for (int64_t rank = 1; rank < comm_.size(); ++rank) {
      if (digest(rank) == digest(0)) continue;
      const std::string layer = sites[i].layer == record::kNoLayer ? "" : fmt::format("layer {} ", sites[i].layer);
      return MakeError(Code::kPeer,
                       fmt::format("rank {}: expected the digest {:016x} of rank 0 at {}{}, found {:016x}; "
                                   "check that machine and program are the same for all ranks",
                                   rank, digest(0), layer, sites[i].site, digest(rank)));
    }
  }
  return {};
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
