// SPDX-License-Identifier: Apache-2.0
#include "engine/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/str.h"
#include "cache/caches.h"

namespace trivet::engine {
namespace {

// Logits of one step at most: they are the only buffer that grows with the vocabulary times the tokens of a step.
constexpr int64_t kLogitsBytes = int64_t{64} << 20;
constexpr int64_t kMost = int64_t{1} << 20;

Error OutOfRange(const char* option, int64_t low, int64_t high, int64_t found) {
  return MakeError(Code::kUsage, fmt::format("{}: expected {} to {}, found {}; choose a value in that range", option,
                                             low, high, found));
}

Status CheckOptions(const EngineOptions& options, int64_t longest) {
  const struct {
    const char* name;
    int64_t value, low, high;
    int64_t shown_low = low;
  } rows[] = {
      {"--max-model-len", options.max_context, 0, longest, 1},
      {"--max-num-seqs", options.max_sequences, 1, 4096},
      {"--prefill-chunk", options.prefill_chunk, 1, kMost},
      {"--prefill-budget", options.prefill_budget, 0, kMost},
      {"--threads", options.threads, 0, 1024},
      {"--kv-tokens", options.kv_tokens, 0, kMost * 64, 1},
      {"--snapshot-slots", options.snapshot_slots, -1, 4096, 0},
  };
  for (const auto& row : rows) {
    if (row.value < row.low || row.value > row.high) return OutOfRange(row.name, row.shown_low, row.high, row.value);
  }
  if (options.memory_fraction > 0 && options.memory_fraction <= 1) return {};
  return MakeError(Code::kUsage, fmt::format("--memory-fraction: expected more than 0, at most 1, found {}; choose a "
                                             "value in that range",
                                             options.memory_fraction));
}

// Whether what ranks show each other of a row passes through a slot.
Status CheckRows(const plan::Geometry& geometry, const plan::Layout& layout) {
  constexpr int64_t kMostElements = comm::kSlotBytes / static_cast<int64_t>(sizeof(float));
  const int64_t row = std::max(2 * geometry.hidden, geometry.moe.experts + 1);  // parts of sums have 8 bytes
  if (layout.sequence_parallel && layout.ranks > 1 && row > kMostElements) {
    return MakeError(
        Code::kUnsupported,
        fmt::format("--sp: expected at most {} elements of a row, found {}; leave it out", kMostElements, row));
  }
  int64_t widest = 0;
  for (const plan::RankShard& shard : layout.shards) {
    const plan::DeltaNetGeometry& delta = geometry.delta_net;
    const int64_t heads = shard.delta_net.v_heads;
    widest = std::max({widest, shard.attention.kv_heads * (geometry.key_dim() + geometry.value_dim()),
                       2 * shard.delta_net.k_heads * delta.k_dim + 2 * heads * delta.v_dim + 2 * heads});
  }
  if (layout.context.ranks == 1 || widest <= kMostElements) return {};
  return MakeError(Code::kUnsupported,
                   fmt::format("--cp: expected at most {} elements of keys and values, or of a delta "
                               "net's inputs, of one token, found {}; leave it out",
                               kMostElements, widest));
}

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

// Fills in what memory decides, the same for every replica. All ranks are on one machine, so their sums count.
class Sizing {
 public:
  Sizing(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options, EngineSizes* sizes)
      : options_(options), limits_(sizes->limits), memory_(sizes->memory) {
    for (int64_t rank = 0; rank < layout.world(); ++rank) {
      units_.push_back(cache::UnitsOf(geometry, layout.ShardOf(rank),
                                      {0, 0, limits_.prefill_chunk, limits_.max_context, options.kv_dtype}));
      page_ += units_.back().page;
      slot_ += units_.back().slot;
    }
    left_ = memory_.budget;
  }

  // Weights, scratch and the states of all running sequences have to fit.
  Status TakeFixed() {
    int64_t weights = 0, scratch = 0;
    for (const plan::RankMemory& rank : memory_.ranks) {
      weights += rank.weights;
      scratch += rank.scratch;
    }
    const int64_t states = slot_ * limits_.max_sequences;
    left_ -= weights + scratch + states;
    if (left_ >= 0) return {};
    return MakeError(
        Code::kCapacity,
        fmt::format("memory: expected at most {}, which is {} of {} available, found {} of weights, {} of "
                    "scratch and {} of states of {} sequences; lower --max-num-seqs or --prefill-chunk, or "
                    "raise --memory-fraction",
                    Bytes(memory_.budget), options_.memory_fraction, Bytes(memory_.available), Bytes(weights),
                    Bytes(scratch), Bytes(states), limits_.max_sequences));
  }

  // Two snapshots for each sequence that runs, of its prompt and of its answer, within an eighth of what is left,
  // unless an option says how many.
  Status TakeSnapshots() {
    if (!limits_.prefix_cache || !limits_.stateful) return {};
    int64_t count = options_.snapshot_slots;
    if (count < 0)
      count = std::min<int64_t>(int64_t{2} * limits_.max_sequences, left_ / 8 / std::max<int64_t>(1, slot_));
    if (count * slot_ > left_) return DoesNotFit("--snapshot-slots", count, "slots", left_ / slot_);
    limits_.snapshots = static_cast<int32_t>(count);
    left_ -= count * slot_;
    return {};
  }

  // Pages for every sequence's context, within what is left, unless an option says how many.
  Status TakePages() {
    const int64_t page = std::max<int64_t>(1, page_), fit = left_ / page;
    const int64_t whole = sched::PagesFor(limits_.max_context);
    int64_t pages = sched::PagesFor(options_.kv_tokens);
    if (pages > fit) return DoesNotFit("--kv-tokens", options_.kv_tokens, "tokens", fit * sched::kPageTokens);
    if (pages == 0) {
      pages = std::min(whole * limits_.max_sequences, fit);
      if (pages < whole && options_.max_context > 0) {
        return DoesNotFit("--max-model-len", limits_.max_context, "tokens", fit * sched::kPageTokens);
      }
    }
    if (pages < whole && options_.max_context > 0) {
      return MakeError(
          Code::kCapacity,
          fmt::format("--kv-tokens: expected at least the {} of --max-model-len, found {}; raise the one or "
                      "lower the other",
                      limits_.max_context, options_.kv_tokens));
    }
    if (pages == 0) return DoesNotFit("KV cache", sched::kPageTokens, "tokens", 0);
    limits_.pages = static_cast<int32_t>(std::min<int64_t>(pages, INT32_MAX / sched::kPageTokens));
    limits_.max_context = static_cast<int32_t>(std::min<int64_t>(limits_.max_context, pages * sched::kPageTokens));
    return {};
  }

  void Finish() {
    memory_.kv_tokens = int64_t{limits_.pages} * sched::kPageTokens;
    memory_.context = limits_.max_context;
    memory_.sequences = limits_.max_sequences;
    memory_.snapshots = limits_.snapshots;
    for (size_t r = 0; r < units_.size(); ++r) {
      memory_.ranks[r].kv = units_[r].page * limits_.pages;
      memory_.ranks[r].states = units_[r].slot * limits_.max_sequences;
      memory_.ranks[r].snapshots = units_[r].slot * limits_.snapshots;
    }
  }

 private:
  Error DoesNotFit(const char* what, int64_t found, const char* unit, int64_t most) const {
    return MakeError(Code::kCapacity,
                     fmt::format("{}: expected at most {} {}, which fill the {} that weights, states and scratch leave "
                                 "of {} ({} of {} available), found {}; lower it, or raise --memory-fraction",
                                 what, most, unit, Bytes(left_), Bytes(memory_.budget), options_.memory_fraction,
                                 Bytes(memory_.available), found));
  }

  const EngineOptions& options_;
  sched::SchedulerLimits& limits_;
  plan::MemoryPlan& memory_;
  std::vector<cache::CacheUnits> units_;  // by rank
  int64_t page_ = 0, slot_ = 0;           // bytes of one on all ranks
  int64_t left_ = 0;                      // of the budget
};

}  // namespace

Status CheckBackend(const plan::Layout& layout, Backend backend) {
  if (backend == Backend::kCpu || (layout.world() == layout.ranks && !layout.sequence_parallel)) return {};
  return MakeError(
      Code::kUnsupported,
      "--cp, --sp, --pp, --dp: expected ranks on the processor, found --backend cuda, where whole sequences, one "
      "stage and one replica run; leave them out, or use --backend cpu");
}

int ThreadsPerRank(const EngineOptions& options, int64_t ranks) {
  if (options.threads > 0) return static_cast<int>(options.threads);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / ranks));
}

Result<EngineSizes> MakeSizes(const plan::Geometry& geometry, const plan::Layout& layout, const plan::LayoutCost& cost,
                              const EngineOptions& options, int64_t available) {
  // A row of logits passes through a slot when ranks hand over their columns, a line of it is taken by their geometry.
  constexpr int64_t kVocab = (comm::kSlotBytes - 64) / static_cast<int64_t>(sizeof(float));
  if (geometry.vocab > kVocab) {
    return MakeError(
        Code::kUnsupported,
        fmt::format("vocabulary: expected at most {} rows, found {}; see docs/limits.md", kVocab, geometry.vocab));
  }
  TRY(CheckRows(geometry, layout));
  const int64_t longest = std::min(geometry.max_positions, kMost * 16);
  TRY(CheckOptions(options, longest));
  const int64_t context = options.max_context > 0 ? options.max_context : longest;
  const int64_t chunk = std::min(options.prefill_chunk, context);
  EngineSizes sizes;
  sched::SchedulerLimits& limits = sizes.limits;
  limits.max_sequences = static_cast<int32_t>(options.max_sequences);
  limits.prefill_chunk = static_cast<int32_t>(chunk);
  limits.prefill_budget = static_cast<int32_t>(options.prefill_budget);
  limits.max_step_tokens = static_cast<int32_t>(std::max<int64_t>({chunk, options.max_sequences, 512}));
  limits.max_logits_rows = static_cast<int32_t>(
      std::clamp<int64_t>(kLogitsBytes / 4 / geometry.vocab, options.max_sequences, limits.max_step_tokens));
  limits.max_context = static_cast<int32_t>(context);
  // A position that is found in the cache is computed by nobody, so there is nothing to record of it; and what forced
  // experts made of a token is not what another request with the same tokens would have.
  limits.prefix_cache = options.prefix_cache && !options.proof.on() && options.routes.empty();
  limits.stateful = std::any_of(geometry.layers.begin(), geometry.layers.end(), [&](const plan::LayerGeometry& layer) {
    return !plan::HasKv(layer.mixer) || cache::RingPages(layer, {0, 0, chunk, context}) > 0;
  });
  sizes.memory.source = options.backend == Backend::kCpu ? "machine" : "GPUs";
  sizes.memory.available = available;
  sizes.memory.budget = static_cast<int64_t>(static_cast<double>(available) * options.memory_fraction);
  sizes.memory.replicas = layout.replicas;
  const int64_t logits = limits.max_logits_rows * geometry.vocab * static_cast<int64_t>(sizeof(float));
  for (int64_t rank = 0; rank < layout.world(); ++rank) {
    const plan::RankShard& shard = layout.ShardOf(rank);
    plan::RankMemory memory;
    memory.weights = cost.ranks[static_cast<size_t>(rank) % cost.ranks.size()].weight_bytes;
    memory.scratch = model::Model::WorkspaceBytes(geometry, shard, StepSizeOf(layout, limits));
    if (options.backend != Backend::kCpu) memory.scratch += comm::PeerTransport::Bytes(layout.ranks);
    // Rank 0 has the logits of all replicas, and the first rank of every share of a last stage those of its rows; where
    // these are all rows of its replica, rank 0 has them once.
    const bool gathers = shard.stage.last && layout.At(rank).tp == 0;
    const bool once = rank == 0 && layout.context.ranks == 1 && (layout.ranks == 1 || !layout.sequence_parallel);
    memory.scratch += (rank == 0 ? layout.replicas * logits : 0) + (gathers && !once ? logits : 0);
    sizes.memory.ranks.push_back(memory);
  }
  Sizing sizing(geometry, layout, options, &sizes);
  TRY(sizing.TakeFixed());
  TRY(sizing.TakeSnapshots());
  TRY(sizing.TakePages());
  sizing.Finish();
  TRY(sched::Validate(limits));
  return sizes;
}

}  // namespace trivet::engine
