// SPDX-License-Identifier: Apache-2.0
// Planted faults: the mistakes that a layout can hide. They exist so that tests can show that each is caught and named.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace trivet::comm {

/// Which mistake.
enum class FaultKind {
  kNone,
  kPartialBF16,   // a rank rounds its part of a sum to bf16
  kRankOrder,     // a rank adds the parts in an order that starts at itself
  kSplitK,        // a rank ends its leaves in the middle, as a kernel that splits K by a heuristic would
  kLocalScale,    // a rank rounds its part to 8 bits with a scale taken over what it holds
  kFallback,      // every rank takes the other algorithm than its size asks for, and nobody says why
  kHandBF16,      // a rank's stage rounds to bf16 what it hands to the next, and the rank what its context group sees
  kWrongSlot,     // a rank's first two experts of layer `site` lie in each other's slots
  kWeightBit,     // one bit of the first expert of layer `site` is another in a rank's memory
  kRouterUlp,     // a rank's router takes the largest logit of the first token in layer `site` one step higher
  kLocalTopK,     // a rank's router chooses among every rank's share of the experts of layer `site`, then among those
  kCombineOrder,  // a rank adds what its experts of layer `site` give in float32, in the order in which they come
  kSplitKV,       // a rank splits the keys of its `site`-th attention layer when a step has few tokens
  kMovedMap,      // from layer `site` on, in every step, a rank has moved experts to other slots and names another map
  kOtherSplit,    // context groups split sequences in the other way than the layout says
  kSpFirst,       // rows are dealt to the ranks that cut a layer before context groups share them out, not after
  kOtherReplica,  // requests are computed by another replica than the one that is noted
  kDie,           // the rank exits
  kHang,          // the rank stops making progress
};

/// A mistake, where and when.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  int64_t rank = 0;
  int64_t site = 0;  // the n-th reduction of a step, from 0; of kinds that name one: the layer
  int64_t step = 0;  // kDie and kHang: the step

  bool Hits(FaultKind which, int64_t at_rank) const { return kind == which && rank == at_rank; }
};

/// Whether only ranks on the processor can make the mistake.
bool OnProcessorAlone(FaultKind kind);

/// To the nearest bf16, halves away from zero: what planted mistakes do to a value.
float RoundedToBF16(float value);

/// Parses "kind[:rank=R][:site=N][:step=N]", such as "partial-bf16:rank=1:site=4".  Errors: kUsage lists the kinds.
Result<Fault> ParseFault(const std::string& text);

}  // namespace trivet::comm
