// SPDX-License-Identifier: Apache-2.0
#include "engine/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>

#include "engine/expert_digests.h"
#include "proof/rank_files.h"

namespace trivet::engine {
namespace {

static_assert(sched::kPageTokens == cache::kPageTokens && sched::kPageTokens == kernels::kBlockKeys,
              "a page is what the scheduler counts, the cache holds and attention visits");

constexpr std::byte kStop{0}, kStep{1}, kSeal{2};

// Ends its leaves in the middle: the planted fault of a kernel that splits K by a heuristic. Leaves stay even.
void SplitLeaves(model::LoadedTensors* tensors) {
  for (auto& [name, tensor] : *tensors) {
    if (tensor.role == plan::Role::kMatrix && tensor.leaf % 4 == 0) tensor.leaf /= 2;
  }
}

// Puts the first two experts of a layer into each other's slots: the planted fault of a loader that mixes them up.
void SwapExperts(int64_t layer, model::LoadedTensors* tensors) {
  const std::string at = fmt::format("layers.{}.moe.expert.", layer);
  for (auto& [name, tensor] : *tensors) {
    if (!name.starts_with(at + "0.")) continue;
    const auto other = tensors->find(at + "1." + name.substr(at.size() + 2));
    if (other != tensors->end()) std::swap(tensor, other->second);
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
                                           limits.max_context, options_.kv_dtype}));
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
  if (options_.fault.Hits(comm::FaultKind::kWrongSlot, rank)) SwapExperts(options_.fault.site, &tensors);
  TRY_ASSIGN(model::Weights weights, model::Weights::Bind(device_, geometry, shard, std::move(tensors)));
  if (options_.proof.on()) {
    log_ = std::make_unique<record::RunLog>(LogOptionsOf(geometry, layout_, options_.proof, Contract()));
  }
  const model::Runtime runtime{geometry, layout_, shard, kernels_,   options_.numerics, device_,
                               tables_,  comm_,   pool_, workspace_, caches_,           log_.get()};
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
  BeginLog(plan);
  for (const sched::StateCopy& copy : plan.restores) caches_.CopyState(copy.from, copy.to);
  TRY(model_->Forward({plan.tokens, spans, plan.pages, rows}, output));
  for (const sched::StateCopy& copy : plan.saves) caches_.CopyState(copy.from, copy.to);
  return {};
}

// Names the rows of a step by their tokens, which no schedule changes.
void RankWorker::BeginLog(const sched::StepPlan& plan) {
  if (log_ == nullptr) return;
  std::vector<record::RowRecord> rows(plan.tokens.size());
  std::vector<int64_t> logits_rows;
  for (const sched::Span& span : plan.spans) {
    const auto request = static_cast<int64_t>(span.seq);
    const auto& from = options_.proof.logits_from;
    const int64_t first = static_cast<size_t>(request) < from.size() ? from[static_cast<size_t>(request)] : 0;
    for (int32_t i = 0; i < span.count; ++i) {
      const auto row = static_cast<size_t>(span.token_begin + i);
      const int64_t position = span.start + i, token = record::GlobalToken(request, position);
      rows[row] = {token, static_cast<uint32_t>(plan.step), static_cast<uint32_t>(row), plan.tokens[row], 0};
      if (i < span.count - span.logits_count) continue;
      logits_rows.push_back(position >= first ? token : record::kPadding);
    }
  }
  log_->BeginStep(std::move(rows), std::move(logits_rows));
}

Json RankWorker::Environment() const {
  return {{"schema", "trivet.rank.v1"},
          {"group", options_.group},
          {"rank", comm_.rank()},
          {"ranks", comm_.size()},
          {"backend", BackendName(device_.backend())},
          {"device", device_.name()},
          {"threads", pool_.size()},
          {"kernels", kernels_.Names()},
          {"range_flags", comm_.AnyReport()}};
}

Status RankWorker::WriteEvidence() {
  if (comm_.rank() == 0) {
    const Result<std::vector<std::byte>> sent = comm_.Broadcast(std::span(&kSeal, 1), true);
    if (!sent.ok()) return sent.error();
  }
  log_->Sort();
  proof::RankFacts facts;
  facts.rank = comm_.rank();
  facts.env = Environment();
  const plan::RankShard& shard = layout_.shards[static_cast<size_t>(comm_.rank())];
  TRY_ASSIGN(facts.weights,
             ExpertDigests(opened_, {comm_.rank(), comm_.size(), shard}, model_->weights().tensors, device_, &pool_));
  facts.weights["resident_bytes"] = weight_bytes();
  facts.owners = [this](record::Site site, int64_t layer) { return OwnersOf(opened_.geometry, layout_, site, layer); };
  const proof::RankRun recorded = proof::RankRunOf(*log_, facts);
  TRY(proof::WriteFiles(options_.proof.dir, proof::RankFiles(recorded, options_.proof.level)));
  if (facts.rank == 0 && options_.proof.level >= record::Level::kRows) {
    TRY(proof::WriteFiles(options_.proof.dir, {{"logits.bin", proof::EncodeLogits(log_->logits())}}));
  }
  return comm_.Barrier(true);
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
    if (message[0] == kSeal) {
      TRY(WriteEvidence());
      continue;
    }
    TRY_ASSIGN(const sched::StepPlan plan, sched::StepPlan::Deserialize(std::span(message).subspan(1)));
    TRY(RunStep(plan, {}));
  }
}

}  // namespace trivet::engine
