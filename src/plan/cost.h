// SPDX-License-Identifier: Apache-2.0
// What a layout costs: bytes per rank, bytes a decode step reads, bytes collectives move; and what other rank counts
// would cost. Pure arithmetic on Geometry and Layout.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/step_part.h"

namespace trivet::plan {

/// One kind of collective in a step.
struct CollectiveCost {
  std::string site;         // "embed", "attn", "gdn", "moe", "mlp", "logits"; "stage": rows to the next one; "sampler";
                            // "keys", "states": what the ranks of a context group show each other of their rows;
                            // "norms", "routers": rows that are dealt, come together again
  int64_t count = 0;        // calls per step
  int64_t elements = 0;     // per token per call
  int64_t bytes_exact = 0;  // per token per call, 64-bit integers
  int64_t bytes_fast = 0;   // per token per call, float32
};

/// Costs of one rank.
struct RankCost {
  int64_t weight_bytes = 0;  // resident, pads included
  int64_t step_bytes = 0;    // expected read by a one-token step: resident less unrouted experts and embedding rows
  std::array<double, kStepParts> part_bytes{};  // of these, what each part reads
  int64_t kv_token_bytes = 0;                   // per token of context, all layers
  int64_t state_bytes = 0;                      // per sequence, delta-net and convolution states
};

/// Costs of a layout.
struct LayoutCost {
  std::vector<RankCost> ranks;  // of one replica
  std::vector<CollectiveCost> collectives;
  double weight_factor = 1;  // largest rank's weights over total / N, the ranks of a replica
  // Bytes a one-token step waits for: it passes through all stages, and their ranks meet after every part, so the
  // busiest rank of each part counts, and for whole experts the expected largest number of a token's experts on one
  // rank.
  int64_t critical_bytes = 0;
  double step_factor = 1;  // critical bytes over the one-rank step bytes / N
  double kv_factor = 1;    // largest rank's KV bytes over total / N
};

/// Bytes of one matrix element, which the checkpoint's dtypes decide, of one cache element, and of what the cache keeps
/// beside each token's key, and value, of one KV head.
struct ElementBytes {
  /// By the part of a step: the table of the embedding is kEmbed's, routers are kEnds'.
  std::array<double, kStepParts> matrix = Alike(2);
  int64_t cache = 4;
  int64_t cache_row = 0;

  double Of(StepPart part) const { return matrix[static_cast<size_t>(part)]; }
  /// The same for all parts.
  static constexpr std::array<double, kStepParts> Alike(double bytes) {
    std::array<double, kStepParts> parts{};
    parts.fill(bytes);
    return parts;
  }
};

/// Weights that a rank with `shard` holds of the layers of its stage, pads included.
double ResidentBytes(const Geometry& geometry, const RankShard& shard, const ElementBytes& bytes);

/// Prices a layout.
LayoutCost PriceLayout(const Geometry& geometry, const Layout& layout, const ElementBytes& bytes);

/// Experts that live together: how many, and what one of them weighs on the busiest rank.
struct ExpertGroup {
  int64_t held = 0;
  int64_t weight = 1;  // of one drawn expert, in any unit
};

/// Expected largest weight of a token's routed experts in one group, when `top_k` of all experts are drawn uniformly
/// without repetition. Exact, by counting.
double ExpectedMaxRouted(const std::vector<ExpertGroup>& groups, int64_t top_k);

}  // namespace trivet::plan
