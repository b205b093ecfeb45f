// SPDX-License-Identifier: Apache-2.0
#include "engine/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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

// Changes the first weight of a layer's first expert by one bit: the planted fault of a damaged copy of it.
void FlipBit(int64_t layer, const device::Device& device, model::LoadedTensors* tensors) {
  const auto found = tensors->find(fmt::format("layers.{}.moe.expert.0.gate_up", layer));
  if (found == tensors->end()) return;
  std::byte first{};
  device.Download(&first, found->second.buffer.data(), 1);
  first ^= std::byte{1};
  device.Upload(found->second.buffer.data(), &first, 1);
}

// Keys as the words that they are made of: what moves rows moves bytes, whatever they mean.
std::span<float> WordsOf(std::span<uint64_t> keys) {
  return {reinterpret_cast<float*>(keys.data()), keys.size() * sizeof(uint64_t) / sizeof(float)};
}

// The rows of a run list, one behind the other, that `rank` has.
std::vector<int32_t> RowsKept(std::span<const comm::RowRun> runs, int64_t rank) {
  std::vector<int32_t> rows;
  for (const comm::RowRun& run : runs) {
    if (run.rank != rank && run.rank != comm::kEveryRank) continue;
    for (int64_t i = 0; i < run.count; ++i) rows.push_back(static_cast<int32_t>(run.begin + i));
  }
  return rows;
}

// By which split the ranks work: that of their layout, unless the planted fault is that they do not.
plan::RowSplit SplitOf(const plan::Layout& layout, const comm::Fault& fault) {
  plan::RowSplit rows = layout.Rows();
  if (fault.kind == comm::FaultKind::kSpFirst) rows.context_first = false;
  if (fault.kind == comm::FaultKind::kOtherSplit) {
    const bool zigzag = rows.context.split == plan::SequenceSplit::kZigzag;
    rows.context.split = zigzag ? plan::SequenceSplit::kContiguous : plan::SequenceSplit::kZigzag;
  }
  return rows;
}

// The tokens of a step by the names that no schedule changes.
std::vector<int64_t> GlobalTokens(const sched::StepPlan& plan) {
  std::vector<int64_t> tokens(plan.tokens.size(), record::kPadding);
  for (const sched::Span& span : plan.spans) {
    for (int32_t i = 0; i < span.count; ++i) {
      tokens[static_cast<size_t>(span.token_begin + i)] =
          record::GlobalToken(static_cast<int64_t>(span.seq), int64_t{span.start} + i);
    }
  }
  return tokens;
}

// Who keeps which of the head's rows: those of logits, and the drawn ones behind them.
std::vector<comm::RowRun> HeadRuns(const StepShares& keepers) {
  std::vector<comm::RowRun> runs = keepers.logits;
  const int64_t logits = comm::AllRows(runs);
  for (const comm::RowRun& run : keepers.drawn) runs.push_back({run.rank, logits + run.begin, run.count});
  return runs;
}

// The spans as layers see them.
std::vector<kernels::TokenSpan> SpansOf(const sched::StepPlan& step, std::span<const int32_t> pages) {
  std::vector<kernels::TokenSpan> spans;
  for (const sched::Span& span : step.spans) {
    spans.push_back({span.token_begin, span.count, span.start, span.state_slot, pages.data() + span.page_begin});
  }
  return spans;
}

}  // namespace

model::StepSize StepSizeOf(const plan::Layout& layout, const sched::SchedulerLimits& limits) {
  const int64_t dealt = layout.sequence_parallel && layout.ranks > 1 ? limits.max_step_tokens : 0;
  return {limits.max_step_tokens, limits.max_logits_rows, limits.max_sequences * sched::PagesFor(limits.max_context),
          dealt};
}

kernels::Target TargetOf(const device::Device& device) {
  if (device.backend() == Backend::kCpu) return kernels::CpuTarget();
  return {device.backend(), device.level(), kernels::Contract::kMatrix};
}

RankWorker::RankWorker(const OpenedModel& model, const plan::Layout& layout, const RankOptions& options,
                       RankComms comms)
    : options_(options),
      comms_(std::move(comms)),
      pool_(options.threads),
      opened_(model),
      layout_(layout),
      place_(layout.At(comms_.world.rank())),
      rows_(SplitOf(layout, options.fault)),
      computer_([this](int64_t position) { return rows_.OwnerOf(position).context; }),
      keeper_([this](int64_t position) { return rows_.OwnerOf(position).rank; }),
      shard_(layout.ShardOf(comms_.world.rank())) {}

Result<std::unique_ptr<RankWorker>> RankWorker::Make(const OpenedModel& model, const plan::Layout& layout,
                                                     const RankOptions& options, RankComms comms,
                                                     const LoadProgress& progress) {
  std::unique_ptr<RankWorker> worker(new RankWorker(model, layout, options, std::move(comms)));
  TRY(worker->Prepare(progress));
  return worker;
}

Status RankWorker::Prepare(const LoadProgress& progress) {
  comm::Communicator& world = comms_.world;
  const int64_t rank = world.rank();
  const plan::Geometry& geometry = opened_.geometry;
  const sched::SchedulerLimits& limits = options_.limits;
  TRY_ASSIGN(device_, device::Device::Open(options_.backend, rank));
  TRY_ASSIGN(kernels_, kernels::SelectKernels(TargetOf(device_), options_.kernels));
  const model::StepSize step = StepSizeOf(layout_, limits);
  TRY_ASSIGN(tables_, model::Tables::Make(device_, geometry, shard_, step));
  TRY_ASSIGN(device::Buffer scratch,
             device::Buffer::Make(device_, model::Model::WorkspaceBytes(geometry, shard_, step), "scratch memory"));
  workspace_ = device::Workspace(std::move(scratch));
  TRY_ASSIGN(caches_, cache::Caches::Make(device_, geometry, shard_,
                                          {limits.pages, limits.max_sequences + limits.snapshots, limits.prefill_chunk,
                                           limits.max_context, options_.kv_dtype}));
  const plan::ShardMap map = plan::MakeShardMap(geometry, layout_, rank, opened_.names);
  // Others judge this rank by its progress, and their end is its end.
  const auto check = [&world]() -> Status {
    world.tick()->fetch_add(1, std::memory_order_relaxed);
    if (!world.aborted()) return {};
    return MakeError(Code::kPeer,
                     fmt::format("rank {}: expected all ranks to load, found that one failed", world.rank()));
  };
  const LoadTarget target{device_, &pool_, device_.backend() == Backend::kCpu ? 0 : kBandBytes};
  TRY_ASSIGN(model::LoadedTensors tensors, LoadShard(opened_, map, target, progress, check));
  if (options_.fault.Hits(comm::FaultKind::kSplitK, rank)) SplitLeaves(&tensors);
  if (options_.fault.Hits(comm::FaultKind::kWrongSlot, rank)) SwapExperts(options_.fault.site, &tensors);
  if (options_.fault.Hits(comm::FaultKind::kWeightBit, rank)) FlipBit(options_.fault.site, device_, &tensors);
  TRY_ASSIGN(model::Weights weights, model::Weights::Bind(device_, geometry, shard_, std::move(tensors)));
  if (options_.proof.on()) {
    log_ = std::make_unique<record::RunLog>(LogOptionsOf(geometry, layout_, options_.proof, Contract()));
  }
  if (options_.routes != nullptr) forced_ = std::make_unique<model::ForcedRoutes>(options_.routes);
  const auto in_stage = [this](int64_t pp) { return layout_.RankAt({place_.tp, place_.cp, pp, place_.dp}); };
  const int64_t before = shard_.stage.first() ? rank : in_stage(place_.pp - 1);
  const int64_t after = shard_.stage.last ? rank : in_stage(place_.pp + 1);
  const model::Runtime runtime{geometry,
                               layout_,
                               shard_,
                               kernels_,
                               kernels::WithinRank(options_.numerics, options_.backend),
                               options_.numerics == kernels::Numerics::kFast,
                               device_,
                               tables_,
                               comms_.stage,
                               comms_.context,
                               {world, before, after, RoundsHandedRows()},
                               pool_,
                               workspace_,
                               caches_,
                               log_.get(),
                               forced_.get()};
  model_ = std::make_unique<model::Model>(runtime, std::move(weights));
  if (options_.time_replays && device_.backend() == Backend::kCuda && rank == 0) model_->TimeReplays();
  if (options_.time_parts) model_->TimeParts();
  if (options_.compress_sums) comms_.stage.Compress();
  return comms_.stage.Connect(device_, options_.transport, options_.tuning);
}

// Whether this rank's stage rounds the rows that it hands on: a planted mistake.
bool RankWorker::RoundsHandedRows() const {
  const plan::RankPlace faulty = layout_.At(options_.fault.rank);
  return options_.fault.kind == comm::FaultKind::kHandBF16 && faulty.cp == place_.cp && faulty.pp == place_.pp &&
         faulty.dp == place_.dp;
}

// The planted mistakes of a whole rank.
Status RankWorker::CommitFault(int64_t step) {
  const int64_t rank = comms_.world.rank();
  if (step != options_.fault.step) return {};
  if (options_.fault.Hits(comm::FaultKind::kDie, rank)) {
    return MakeError(Code::kPeer, fmt::format("rank {}: expected to run, found a planted fault; restart without "
                                              "--fault",
                                              rank));
  }
  // Shows no progress until the others have given it up.
  while (options_.fault.Hits(comm::FaultKind::kHang, rank) && !comms_.world.aborted()) ::usleep(1000);
  return {};
}

Status RankWorker::RunStep(const JointStep& step, std::span<const model::StepOutput> outputs) {
  CHECK(static_cast<int64_t>(step.plans.size()) == layout_.replicas);
  TRY(CommitFault(steps_++));
  const sched::StepPlan& plan = step.plans[static_cast<size_t>(place_.dp)];
  const Shares shares = SharesOfStep(plan);
  const model::StepOutput own = OwnOutput(step, shares, outputs);
  if (!plan.spans.empty()) TRY(Compute(plan, shares, own));
  return Collect(step, outputs, own);
}

RankWorker::Shares RankWorker::SharesOfStep(const sched::StepPlan& plan) const {
  Shares shares;
  shares.computed = ShareOf(plan, computer_, place_.cp);
  shares.kept = ShareOf(shares.computed, keeper_, place_.tp);
  shares.computers = SharesOf(plan, computer_);
  shares.keepers = SharesOf(shares.computed, keeper_);
  return shares;
}

// Where this rank writes: at once to where rank 0 wants it when it is that one and has all rows of its replica. Logits
// come together on the first rank of those that cut a layer, and hidden states are with whoever keeps the rows, or with
// the first one.
model::StepOutput RankWorker::OwnOutput(const JointStep& step, const Shares& shares,
                                        std::span<const model::StepOutput> outputs) {
  const bool first = place_.tp == 0, heads = first && shard_.stage.last;
  const size_t logits = heads ? static_cast<size_t>(shares.computed.logits_rows * opened_.geometry.vocab) : 0;
  const size_t drawn = heads ? shares.computed.drawn.size() : 0;
  const int64_t layers = step.hidden && (first || rows_.dealt) ? shard_.stage.layers() : 0;
  const size_t hidden = shares.kept.tokens.size() * static_cast<size_t>(layers * opened_.geometry.hidden);
  if (!outputs.empty() && shares.kept.tokens.size() == step.plans[0].tokens.size()) {
    return {outputs[0].logits.first(logits), outputs[0].hidden.first(hidden), outputs[0].drawn.first(drawn)};
  }
  logits_.resize(logits);
  hidden_.resize(hidden);
  drawn_.resize(drawn);
  return {logits_, hidden_, drawn_};
}

// Brings what the stages of all replicas have to rank 0, replica after replica.
Status RankWorker::Collect(const JointStep& step, std::span<const model::StepOutput> outputs,
                           const model::StepOutput& own) {
  const int64_t last = static_cast<int64_t>(layout_.stages.size()) - 1;
  for (size_t d = 0; d < step.plans.size(); ++d) {
    const auto replica = static_cast<int64_t>(d);
    // Ranks of a stage are numbered by their share, and in it by what they cut of a layer.
    const auto computes = [this](int64_t position) { return computer_(position) * layout_.ranks; };
    const auto keeps = [&](int64_t position) { return computes(position) + std::max<int64_t>(0, keeper_(position)); };
    const model::StepOutput all = outputs.empty() ? model::StepOutput() : outputs[d];
    const StepShares heads = SharesOf(step.plans[d], computes);
    TRY(CollectRows(heads.logits, {0, 0, last, replica}, opened_.geometry.vocab, all.logits, own.logits));
    constexpr int64_t kWords = sizeof(uint64_t) / sizeof(float);
    TRY(CollectRows(heads.drawn, {0, 0, last, replica}, kWords, WordsOf(all.drawn), WordsOf(own.drawn)));
    if (step.hidden) TRY(CollectHidden(replica, SharesOf(step.plans[d], keeps).tokens, all.hidden, own.hidden));
    if (log_ != nullptr && !outputs.empty()) log_->KeepLogits(LogitsTokens(step.plans[d]), all.logits);
  }
  return forced_ == nullptr ? Status() : CollectForced();
}

// Hidden states are [layers of the stage][O, H] where they are computed, and [layers][T, H] on rank 0.
Status RankWorker::CollectHidden(int64_t replica, std::span<const comm::RowRun> runs, std::span<float> all,
                                 std::span<float> own) {
  const size_t layers = opened_.geometry.layers.size(), width = all.size() / layers;
  for (size_t pp = 0; pp < layout_.stages.size(); ++pp) {
    const plan::Stage& stage = layout_.stages[pp];
    const plan::RankPlace from{0, 0, static_cast<int64_t>(pp), replica};
    const size_t own_width = own.size() / static_cast<size_t>(shard_.stage.layers());
    for (int64_t layer = stage.begin; layer < stage.end; ++layer) {
      const bool mine = shard_.stage == stage;
      TRY(CollectRows(
          runs, from, opened_.geometry.hidden, all.subspan(static_cast<size_t>(layer) * width, width),
          mine ? own.subspan(static_cast<size_t>(layer - stage.begin) * own_width, own_width) : std::span<float>()));
    }
  }
  return {};
}

// Brings what was forced so far to rank 0, which adds it up: every stage has layers of its own, every share positions,
// every replica requests.
Status RankWorker::CollectForced() {
  model::ForcedCounts total;
  for (int64_t first = 0; first < layout_.world(); first += layout_.ranks) {  // of those that have the same
    model::ForcedCounts counts = forced_->counts();
    // Hand moves bytes, whatever they mean.
    static_assert(sizeof(counts) % sizeof(float) == 0);
    TRY(comms_.world.Hand(first, 0, {reinterpret_cast<float*>(&counts), sizeof(counts) / sizeof(float)}));
    total.decisions += counts.decisions;
    total.other += counts.other;
  }
  forced_counts_ = total;
  return {};
}

// Brings rows to rank 0 from the ranks of a stage, that of `from`.
//   runs  by the number of a rank in the stage
//   all   rank 0: the rows of all; others: empty;  own: this rank's, in the order of its runs
Status RankWorker::CollectRows(std::span<const comm::RowRun> runs, plan::RankPlace from, int64_t width,
                               std::span<float> all, std::span<float> own) {
  const int64_t rank = comms_.world.rank();
  for (const comm::RowRun& run : runs) {
    from.tp = run.rank % layout_.ranks;
    from.cp = run.rank / layout_.ranks;
    const int64_t sender = layout_.RankAt(from);
    const auto begin = static_cast<size_t>(run.begin * width), count = static_cast<size_t>(run.count * width);
    const std::span<float> to = all.empty() ? all : all.subspan(begin, count);
    std::span<float> values = to;
    if (sender == rank) {
      values = own.first(count);
      own = own.subspan(count);
      if (rank == 0 && values.data() != to.data()) std::copy(values.begin(), values.end(), to.begin());
    }
    TRY(comms_.world.Hand(sender, 0, values));
  }
  return {};
}

Status RankWorker::Compute(const sched::StepPlan& plan, const Shares& shares, const model::StepOutput& output) {
  const sched::StepPlan& share = shares.computed;
  const std::vector<kernels::TokenSpan> spans = SpansOf(share, plan.pages), whole = SpansOf(plan, plan.pages);
  std::vector<int32_t> rows;
  for (const sched::Span& span : shares.kept.spans) {
    for (int32_t i = span.count - span.logits_count; i < span.count; ++i) rows.push_back(span.token_begin + i);
  }
  if (forced_ != nullptr) forced_->BeginStep(GlobalTokens(share));
  BeginLog(shares);
  for (const sched::StateCopy& copy : plan.restores) caches_.CopyState(copy.from, copy.to);
  const std::vector<comm::RowRun> heads = HeadRuns(shares.keepers);
  TRY(model_->Forward({share.tokens,
                       spans,
                       plan.pages,
                       rows,
                       {whole, shares.computers.tokens, plan.head_rows()},
                       shares.kept.drawn,
                       shares.keepers.tokens,
                       heads,
                       share.rules},
                      output));
  for (const sched::StateCopy& copy : plan.saves) caches_.CopyState(copy.from, copy.to);
  return {};
}

// The tokens of a step's rows of logits; kPadding for those that are not to be recorded.
std::vector<int64_t> RankWorker::LogitsTokens(const sched::StepPlan& plan) const {
  std::vector<int64_t> tokens;
  const std::vector<int64_t>& from = options_.proof.logits_from;
  for (const sched::Span& span : plan.spans) {
    const auto request = static_cast<int64_t>(span.seq);
    const int64_t first = static_cast<size_t>(request) < from.size() ? from[static_cast<size_t>(request)] : 0;
    for (int64_t position = span.start + span.count - span.logits_count; position < span.start + span.count;
         ++position) {
      tokens.push_back(position >= first ? record::GlobalToken(request, position) : record::kPadding);
    }
  }
  return tokens;
}

// Names the rows of a step by their tokens, which no schedule changes.
void RankWorker::BeginLog(const Shares& shares) {
  if (log_ == nullptr) return;
  const sched::StepPlan& plan = shares.computed;
  std::vector<record::RowRecord> rows(plan.tokens.size());
  for (const sched::Span& span : plan.spans) {
    for (int32_t i = 0; i < span.count; ++i) {
      const auto row = static_cast<size_t>(span.token_begin + i);
      const int64_t token = record::GlobalToken(static_cast<int64_t>(span.seq), span.start + i);
      rows[row] = {token, static_cast<uint32_t>(plan.step), static_cast<uint32_t>(row), plan.tokens[row], 0};
    }
  }
  log_->BeginStep(
      std::move(rows), LogitsTokens(plan),
      record::KeptRows{RowsKept(shares.keepers.tokens, place_.tp), RowsKept(shares.keepers.logits, place_.tp)});
}

Json RankWorker::Environment() const {
  Json env{{"schema", "trivet.rank.v1"},
           {"group", options_.group},
           {"rank", comms_.world.rank()},
           {"ranks", comms_.world.size()},
           {"backend", BackendName(device_.backend())},
           {"device", device_.name()},
           {"threads", pool_.size()},
           {"kernels", kernels_.Names()},
           {"range_flags", comms_.world.AnyReport()}};
  if (log_->chosen_among() > 0) env["chosen_among"] = log_->chosen_among();
  return env;
}

Status RankWorker::WriteEvidence() {
  comm::Communicator& world = comms_.world;
  if (world.rank() == 0) {
    const Result<std::vector<std::byte>> sent = world.Broadcast(std::span(&kSeal, 1), true);
    if (!sent.ok()) return sent.error();
  }
  log_->Sort();
  proof::RankFacts facts;
  facts.rank = world.rank();
  for (int64_t tp = 0; tp < layout_.ranks; ++tp) {
    facts.group.push_back(layout_.RankAt({tp, place_.cp, place_.pp, place_.dp}));
  }
  for (int64_t cp = 0; cp < layout_.context.ranks; ++cp) {
    facts.context.push_back(layout_.RankAt({place_.tp, cp, place_.pp, place_.dp}));
  }
  facts.env = Environment();
  TRY_ASSIGN(facts.weights,
             ExpertDigests(opened_, {world.rank(), world.size(), shard_}, model_->weights().tensors, device_, &pool_));
  facts.weights["resident_bytes"] = weight_bytes();
  facts.owners = [this](record::Site site, int64_t layer) { return OwnersOf(opened_.geometry, layout_, site, layer); };
  TRY(proof::WriteFiles(options_.proof.dir, proof::LogFiles(*log_, facts)));
  if (facts.rank == 0 && options_.proof.level >= record::Level::kRows) {
    TRY(proof::WriteFiles(options_.proof.dir, {{"logits.bin", proof::EncodeLogits(log_->logits())}}));
  }
  return world.Barrier(true);
}

Status RankWorker::Announce(const JointStep* step) {
  std::vector<std::byte> message{step == nullptr ? kStop : kStep};
  if (step != nullptr) {
    const std::vector<std::byte> bytes = step->Serialize();
    message.insert(message.end(), bytes.begin(), bytes.end());
  }
  const Result<std::vector<std::byte>> sent = comms_.world.Broadcast(message, true);
  if (!sent.ok()) return sent.error();
  return step == nullptr ? comms_.stage.Close() : Status();
}

void RankWorker::ParallelFor(int64_t count, const std::function<void(int64_t)>& body) {
  pool_.ParallelFor(count, 1, [&](int64_t begin, int64_t) { body(begin); });
}

Status RankWorker::Serve() {
  while (true) {
    TRY_ASSIGN(const std::vector<std::byte> message, comms_.world.Broadcast({}, true));
    if (message.empty() || message[0] == kStop) return comms_.stage.Close();
    if (message[0] == kSeal) {
      TRY(WriteEvidence());
      continue;
    }
    TRY_ASSIGN(const JointStep step, JointStep::Deserialize(std::span(message).subspan(1)));
    TRY(RunStep(step, {}));
  }
}

}  // namespace trivet::engine
