// SPDX-License-Identifier: Apache-2.0
// What a run records about itself besides what its ranks note while they compute: identity, layout, placement, and the
// settings that really applied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/caches.h"
#include "engine/open_model.h"
#include "kernels/registry.h"
#include "plan/layout.h"
#include "plan/placement.h"
#include "record/run_log.h"

namespace trivet::engine {

/// What to record, and where.
struct ProofOptions {
  record::Level level = record::Level::kOff;
  std::string dir;                   // a new folder
  std::string command;               // that records, such as "generate"
  std::vector<int64_t> logits_from;  // by request: the first position whose logits are recorded; all of them if absent

  bool on() const { return level != record::Level::kOff; }
};

/// The name of the arithmetic: runs under different ones must not be compared (docs/numerics.md).
///   kernels  the rows that run;  level: of their device, as device::Device::level
std::string ContractId(kernels::Numerics numerics, Backend backend, const kernels::Kernels& kernels, int64_t level,
                       cache::KvDtype kv_dtype);

/// How experts are spread over the ranks of a layout. Where every rank holds all of them, there is one group.
struct ExpertGroups {
  plan::Placement placement;     // no experts: empty
  std::vector<int64_t> ep_rank;  // of every rank of the world; -1: it computes no experts
};
/// The groups that a layout carries out.
ExpertGroups GroupsOf(const plan::Geometry& geometry, const plan::Layout& layout);

/// What the ranks' logs are made with.
record::LogOptions LogOptionsOf(const plan::Geometry& geometry, const plan::Layout& layout, const ProofOptions& options,
                                const std::string& contract);

/// Which units of the axis summed at a site each rank of a stage holds; where rows come together, by what they are
/// shared out; null where there are none.
Json OwnersOf(const plan::Geometry& geometry, const plan::Layout& layout, record::Site site, int64_t layer);

/// A request of the run.
struct RecordedRequest {
  SeqId id{};
  std::vector<TokenId> prompt, sampled;
  int64_t logits_from = 0;  // first position whose logits are produced
  int64_t computed = 0;     // positions that steps have computed, from 0 on
  int64_t replica = 0;      // that computes them
};

/// The name of a model's config: what its geometry follows from.
std::string ConfigDigest(const OpenedModel& model);

/// Identity of model, tokenizer and arithmetic. Reads all weights.
/// Errors:  those of reading.
Result<Json> IdentityJson(const OpenedModel& model, const std::string& contract, ThreadPool* pool);

/// What the router is.
Json RouterJson(const plan::Geometry& geometry);

/// Which layers have a state.
Json DeltaNetJson(const plan::Geometry& geometry);

/// The requests, with the positions that were computed of each.
Json RequestsJson(const std::vector<RecordedRequest>& requests);

/// The layout as a verifier reads it: sizes and order of dimensions, stages, who holds which experts and channels, and
/// which replica had which request.
Json RecordedLayout(const plan::Geometry& geometry, const plan::Layout& layout, const std::string& group,
                    const std::vector<RecordedRequest>& requests);

}  // namespace trivet::engine
