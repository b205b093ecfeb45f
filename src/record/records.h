// SPDX-License-Identifier: Apache-2.0
// What a run notes about itself, as plain records: who computed which token, what the router chose, what every site
// held. Their bytes are the ones that a sealed run has in its files: little-endian, without holes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace trivet::record {

/// How much a run notes.
///   kDigest  a digest of every decision, of every token at every site that a layout must not move, and of the logits
///   kRows    also the decisions themselves and the logits
///   kFull    also where every chosen expert was to be computed, and where it was
enum class Level : uint8_t { kOff, kDigest, kRows, kFull };

/// "off", "digest", "rows" or "full".
const char* LevelName(Level level);
/// The inverse.
std::optional<Level> ParseLevel(std::string_view text);

/// Places of a forward pass in the order of its dataflow. Numbers are part of the files and never change.
enum class Site : uint8_t {
  kEmbed = 0,
  kMixerNorm = 1,     // the mixer's input; of collectives alone, as are the next two and the channel mixer's input
  kShown = 3,         // what a mixer needs of rows that other ranks of a context group compute
  kReturned = 5,      // and what of it comes back to these
  kMixer = 7,         // the residual stream after attention or delta net
  kChannelsNorm = 8,  // the channel mixer's input
  kRouter = 9,        // the router's logits
  kRoute = 10,        // the choice of experts: a decision
  kChannels = 13,     // the residual stream after the channel mixer
  kFinalNorm = 14,    // of the rows whose logits are wanted
  kLogits = 15,
};
/// "embed", "norm1", "shown", "returned", "resid1", "norm2", "router", "route", "resid2", "final_norm", "logits", or
/// "site <n>".
std::string SiteName(Site site);
/// Whether the ranks that meet there are those of a context group; else they are those that cut a layer.
constexpr bool InContext(Site site) { return site == Site::kShown || site == Site::kReturned; }

/// The layer of a site before the first one; sites behind the last one have the number of layers.
inline constexpr int16_t kBeforeLayers = -1;

/// A token's name in every schedule and layout: the number of its request, and its position there.
constexpr int64_t GlobalToken(int64_t request, int64_t position) { return request << 32 | position; }
constexpr int64_t RequestOf(int64_t token) { return token >> 32; }
constexpr int64_t PositionOf(int64_t token) { return token & 0xFFFFFFFF; }
/// A row that belongs to no request.
inline constexpr int64_t kPadding = -1;

/// A row of a step. `input` is the token id that was computed.
struct RowRecord {
  int64_t token = kPadding;
  uint32_t step = 0, row = 0;
  int32_t input = 0;
  uint32_t flags = 0;
};

/// One routing decision: a layer and a token.
struct DecisionRecord {
  int64_t token = kPadding;
  int32_t input = 0;
  int16_t layer = 0;
  uint8_t finite = 1;  // whether all its numbers are
  uint8_t top_k = 0;
  Digest digest;
};

/// One slot of a decision. `score` becomes the weight, `selection` is what the expert was chosen by.
struct RouteSlot {
  uint16_t expert = 0;
  uint16_t flags = 0;
  float weight = 0, score = 0, selection = 0;
};

/// A decision row is this, then its slots in ascending order. `next` is the best selection that was not chosen.
struct RouteHead {
  int64_t token = kPadding;
  int32_t input = 0;
  int16_t layer = 0;
  uint16_t top_k = 0;
  float next = 0;
  uint32_t flags = 0;
};

/// What one token's row held at a site.
struct BoundRecord {
  int64_t token = kPadding;
  int16_t layer = 0;
  Site site = Site::kEmbed;
  uint8_t flags = 0;
  uint32_t values = 0;  // numbers that the digest covers
  Digest digest;
};

/// Where slot `slot` of a decision was to be computed, by the placement of that version.
struct DispatchRecord {
  int64_t token = kPadding;
  uint32_t step = 0, version = 0;
  int16_t layer = 0;
  uint16_t expert = 0, ep_rank = 0, local_slot = 0;
  uint16_t slot = 0, flags = 0;
  uint32_t reserved = 0;
};

/// What the expert side multiplied: slot `slot` of a decision with the matrices in `local_slot`.
struct ExecuteRecord {
  int64_t token = kPadding;
  uint32_t step = 0;
  int16_t layer = 0;
  uint16_t local_slot = 0;
  uint16_t slot = 0, flags = 0;
  uint32_t reserved = 0;
};

static_assert(sizeof(RowRecord) == 24 && sizeof(DecisionRecord) == 32 && sizeof(RouteSlot) == 16 &&
                  sizeof(RouteHead) == 24 && sizeof(BoundRecord) == 32 && sizeof(DispatchRecord) == 32 &&
                  sizeof(ExecuteRecord) == 24,
              "records are written as they are, so none has a hole");

}  // namespace trivet::record
