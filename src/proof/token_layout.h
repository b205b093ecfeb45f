// SPDX-License-Identifier: Apache-2.0
// Which ranks owe a record of which token in which layer, when several kinds of parallelism are combined. Pure data:
// what a run declares is all that is known of it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "proof/verdict.h"

namespace trivet::proof {

/// Dimensions along which work is shared.
enum class Dimension { kTp, kCp, kDp, kPp, kEp };
inline constexpr size_t kDimensions = 5;
/// "tp" and so on.
const char* DimensionName(Dimension dimension);

/// What a dimension does to tokens.
enum class Mode {
  kReplica,              // every rank of it holds a token's decisions
  kPartitionBySequence,  // ranks share out the positions of what the other cut left them
  kPartition,            // ranks share out positions, or requests
  kReplicaByLayer,       // a token is on all, each of which has other layers
  kNotATokenDimension,   // says nothing about who holds a decision
};
const char* ModeName(Mode mode);
/// The mode of a dimension; `sequence_parallel` changes that of tp.
Mode ModeOf(Dimension dimension, bool sequence_parallel);

/// Place of a rank along every dimension.
using Coordinates = std::array<int64_t, kDimensions>;

/// A layer and a token.
struct Decision {
  int64_t layer = 0;
  int64_t token = 0;
  auto operator<=>(const Decision&) const = default;
};

/// A request: how many of its positions were computed, and from which one on there are logits.
struct RequestFacts {
  int64_t request = 0;
  int64_t computed = 0;
  int64_t logits_from = 0;
};

/// What a run declares about its ranks.
struct TokenLayout {
  int64_t world = 1;
  std::vector<Dimension> rank_order;  // the first one runs fastest; ep only where it multiplies the world
  Coordinates sizes = {1, 1, 1, 1, 1};
  bool sp = false;
  bool zigzag = false;                       // cp gives rank c the chunks c and 2 cp - 1 - c
  int64_t cp_stretch = 0;                    // positions that are cut together, again and again; 0: all computed
  bool cp_first = true;                      // and sequence parallelism shares out what it leaves
  std::vector<Dimension> expert_group_over;  // ranks of these, the first fastest, are dealt to expert groups
  std::vector<int64_t> ep_rank;              // of every rank, when declared; -1: computes no experts
  std::vector<int64_t> stage_of;             // [layers] pp coordinate
  std::vector<int64_t> dp_of;                // [requests] dp coordinate, in the order of `requests`
  std::vector<RequestFacts> requests;

  int64_t layers() const { return static_cast<int64_t>(stage_of.size()); }
  /// Of a rank, by rank_order; ep as declared.
  Coordinates At(int64_t rank) const;
  /// Whether the rank holds the token of request `index` at `position` in `layer`; -1 and layers() belong to the first
  /// and to the last stage.
  bool Carries(const Coordinates& at, int64_t layer, size_t index, int64_t position) const;
  /// Everything the rank must hold in `wanted` layers, sorted.
  std::vector<Decision> ExpectedDecisions(int64_t rank, const std::vector<int64_t>& wanted) const;
  /// Every rank that owes a copy, ascending: ExpectedDecisions of all ranks, seen from the other side.
  std::vector<int64_t> Carriers(const Decision& decision) const;
};

/// Reads layout.json with the requests of run.json. kLayoutUndeclared for an absent fact, kSchemaMismatch for a wrong
/// type or for sizes that contradict each other.
Gate ReadTokenLayout(const Json& layout, const Json& run, TokenLayout* out);

}  // namespace trivet::proof
