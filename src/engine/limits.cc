// SPDX-License-Identifier: Apache-2.0
#include "engine/limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace trivet::engine {
namespace {

// Logits of one step at most: they are the only buffer that grows with the vocabulary times the tokens of a step.
constexpr int64_t kLogitsBytes = int64_t{64} << 20;

Error OutOfRange(const char* option, int64_t low, int64_t high, int64_t found) {
  return MakeError(Code::kUsage, fmt::format("{}: expected {} to {}, found {}; choose a value in that range", option,
                                             low, high, found));
}

// Bytes of one KV page on the rank that holds most heads.
int64_t PageBytes(const plan::Geometry& geometry, const plan::Layout& layout) {
  int64_t layers = 0, heads = 0;
  for (const plan::LayerGeometry& layer : geometry.layers) layers += plan::HasKv(layer.mixer);
  for (const plan::RankShard& shard : layout.shards) heads = std::max(heads, shard.attention.kv_heads);
  const int64_t token = geometry.key_dim() + geometry.value_dim();
  return layers * heads * token * sched::kPageTokens * static_cast<int64_t>(sizeof(float));
}

// KV pages: as asked, else enough for every sequence to reach the full context, within a quarter of the memory that all
// ranks of this machine share.
int64_t Pages(const plan::Geometry& geometry, const plan::Layout& layout, const EngineOptions& options,
              int64_t max_context) {
  const int64_t per_sequence = sched::PagesFor(max_context);
  if (options.kv_tokens > 0) return sched::PagesFor(options.kv_tokens);
  const int64_t memory = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  const int64_t page = std::max<int64_t>(1, PageBytes(geometry, layout) * layout.ranks);
  return std::clamp<int64_t>(memory / 4 / page, per_sequence, per_sequence * options.max_sequences);
}

}  // namespace

int ThreadsPerRank(const EngineOptions& options, int64_t ranks) {
  if (options.threads > 0) return options.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / ranks));
}

Result<sched::SchedulerLimits> MakeLimits(const plan::Geometry& geometry, const plan::Layout& layout,
                                          const EngineOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 20;
  // A row of logits passes through a slot when ranks hand over their columns, a line of it is taken by their geometry.
  constexpr int64_t kVocab = (comm::kSlotBytes - 64) / static_cast<int64_t>(sizeof(float));
  if (geometry.vocab > kVocab) {
    return MakeError(
        Code::kUnsupported,
        fmt::format("vocabulary: expected at most {} rows, found {}; see docs/limits.md", kVocab, geometry.vocab));
  }
  const int64_t longest = std::min(geometry.max_positions, kMost * 16);
  if (options.max_context < 0 || options.max_context > longest) {
    return OutOfRange("--max-model-len", 1, longest, options.max_context);
  }
  if (options.max_sequences < 1 || options.max_sequences > 4096) {
    return OutOfRange("--max-num-seqs", 1, 4096, options.max_sequences);
  }
  if (options.prefill_chunk < 1 || options.prefill_chunk > kMost) {
    return OutOfRange("--prefill-chunk", 1, kMost, options.prefill_chunk);
  }
  if (options.prefill_budget < 0 || options.prefill_budget > kMost) {
    return OutOfRange("--prefill-budget", 0, kMost, options.prefill_budget);
  }
  if (options.threads < 0 || options.threads > 1024) return OutOfRange("--threads", 0, 1024, options.threads);
  if (options.kv_tokens < 0 || options.kv_tokens > kMost * 64) {
    return OutOfRange("--kv-tokens", 1, kMost * 64, options.kv_tokens);
  }
  const int64_t context = options.max_context > 0 ? options.max_context : longest;
  const int64_t pages = Pages(geometry, layout, options, context);
  const int64_t chunk = std::min(options.prefill_chunk, context);
  sched::SchedulerLimits limits;
  limits.max_sequences = static_cast<int32_t>(options.max_sequences);
  limits.prefill_chunk = static_cast<int32_t>(chunk);
  limits.prefill_budget = static_cast<int32_t>(options.prefill_budget);
  limits.max_step_tokens = static_cast<int32_t>(std::max<int64_t>({chunk, options.max_sequences, 512}));
  limits.max_logits_rows = static_cast<int32_t>(
      std::clamp<int64_t>(kLogitsBytes / 4 / geometry.vocab, options.max_sequences, limits.max_step_tokens));
  limits.pages = static_cast<int32_t>(pages);
  limits.max_context = static_cast<int32_t>(std::min(context, pages * sched::kPageTokens));
  limits.prefix_cache = options.prefix_cache;
  limits.recurrent = std::any_of(geometry.layers.begin(), geometry.layers.end(),
                                 [](const plan::LayerGeometry& layer) { return !plan::HasKv(layer.mixer); });
  if (limits.prefix_cache && limits.recurrent) limits.snapshots = limits.max_sequences;
  TRY(sched::Validate(limits));
  return limits;
}

}  // namespace trivet::engine
