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

model::StepSize StepSizeOf(const sched::SchedulerLimits& limits) {
  return {limits.max_step_tokens, limits.max_logits_rows, limits.max_sequences * sched::PagesFor(limits.max_context)};
}

kernels::Target TargetOf(const device::Device& device) {
  if (device.backend() == Backend::kCpu) return kernels::CpuTarget();
  return {device.backend(), device.level(), kernels::Contract::kMatrix};
}

RankWorker::RankWorker(const OpenedModel& model, const plan::Layout& layout, const RankOptions& options,
                       comm::Communicator comm)
    : options_(options), comm_(std::move(comm)), pool_(options.threads), opened_(model), layout_(layout) {}

Result<std::unique_ptr<RankWorker>> RankWorker::Make(const OpenedModel& model, const plan::Layout& layout,
                                                     const RankOptions& options, comm::Communicator comm,
                                                     const LoadProgress& progress) {
  std::unique_ptr<RankWorker> worker(new RankWorker(model, layout, options, std::move(comm)));
  TRY(worker->Prepare(progress));
  return worker;
}

Status RankWorker::Prepare(const LoadProgress& progress) {
  const int64_t rank = comm_.rank();
  const plan::Geometry& geometry = opened_.geometry;
  const plan::RankShard& shard = layout_.shards[static_cast<size_t>(rank)];
  const sched::SchedulerLimits& limits = options_.limits;
  TRY_ASSIGN(device_, device::Device::Open(options_.backend, rank));
  TRY_ASSIGN(kernels_, kernels::SelectKernels(TargetOf(device_), options_.kernels));
  TRY_ASSIGN(tables_, model::Tables::Make(device_, geometry, shard, StepSizeOf(limits)));
  TRY_ASSIGN(device::Buffer scratch,
             device::Buffer::Make(device_, model::Model::WorkspaceBytes(geometry, shard, StepSizeOf(limits)),
                                  "scratch memory"));
  workspace_ = device::Workspace(std::move(scratch));
  TRY_ASSIGN(caches_, cache::Caches::Make(device_, geometry, shard,
                                          {limits.pages, limits.max_sequences + limits.snapshots, limits.prefill_chunk,
                                           limits.max_context}));
  if (options_.sites) {
    const auto bytes = comm_.size() * static_cast<int64_t>(ComparedSites() * sizeof(uint64_t));
    TRY_ASSIGN(digests_, device::Buffer::Make(device_, bytes, "digests of all ranks"));
  }
  const plan::ShardMap map = plan::MakeShardMap(geometry, layout_, rank, opened_.names);
  // Others judge this rank by its progress, and their end is its end.
  const auto check = [this]() -> Status {
    comm_.tick()->fetch_add(1, std::memory_order_relaxed);
    if (!comm_.aborted()) return {};
    return MakeError(Code::kPeer,
                     fmt::format("rank {}: expected all ranks to load, found that one failed", comm_.rank()));
  };
  TRY_ASSIGN(model::LoadedTensors tensors, LoadShard(opened_, map, {device_, &pool_}, progress, check));
  if (options_.fault.Hits(comm::FaultKind::kSplitK, rank)) SplitLeaves(&tensors);
  TRY_ASSIGN(model::Weights weights, model::Weights::Bind(device_, geometry, shard, std::move(tensors)));
  const model::Runtime runtime{
      geometry, layout_, shard, kernels_,   options_.numerics, device_,
      tables_,  comm_,   pool_, workspace_, caches_,           options_.sites ? &sites_ : nullptr};
  model_ = std::make_unique<model::Model>(runtime, std::move(weights));
  return comm_.Connect(device_, options_.transport);
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
  TRY(model_->Forward({plan.tokens, spans, plan.pages, rows}, output));
  for (const sched::StateCopy& copy : plan.saves) caches_.CopyState(copy.from, copy.to);
  return options_.sites && comm_.size() > 1 ? CompareSites(first_site) : Status();
}

Status RankWorker::CompareSites(size_t first) {
  std::span<const record::SiteDigest> sites = std::span(sites_.digests()).subspan(first);
  // The last site is that of the logits, which only rank 0 has.
  const size_t count = ComparedSites();
  CHECK(sites.size() >= count);
  sites = sites.first(count);
  // Every rank's digests in a place of their own, zeros elsewhere: the sum brings them to all.
  std::vector<uint32_t> words(static_cast<size_t>(comm_.size()) * count * 2);
  const size_t own = static_cast<size_t>(comm_.rank()) * count * 2;
  for (size_t i = 0; i < count; ++i) {
    words[own + 2 * i] = static_cast<uint32_t>(sites[i].digest);
    words[own + 2 * i + 1] = static_cast<uint32_t>(sites[i].digest >> 32);
  }
  device_.Upload(digests_.data(), words.data(), digests_.bytes());
  TRY(comm_.AllReduce(digests_.As<uint32_t>()));
  TRY(comm_.Wait());
  device_.Download(words.data(), digests_.data(), digests_.bytes());
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
  if (!sent.ok()) return sent.error();
  return plan == nullptr ? comm_.Close() : Status();
}

Status RankWorker::Serve() {
  while (true) {
    TRY_ASSIGN(const std::vector<std::byte> message, comm_.Broadcast({}, true));
    if (message.empty() || message[0] == kStop) return comm_.Close();
    TRY_ASSIGN(const sched::StepPlan plan, sched::StepPlan::Deserialize(std::span(message).subspan(1)));
    TRY(RunStep(plan, {}));
  }
}

}  // namespace trivet::engine
