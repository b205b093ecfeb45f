// SPDX-License-Identifier: Apache-2.0
// The ways by which ranks exchange what their devices hold, and how a sum goes over them.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "comm/peer_rules.h"

namespace trivet::comm {

/// Where bytes pass.
enum class Transport {
  kAuto,  // kPeer where the group can, else kHost
  kHost,  // shared memory of the host
  kPeer,  // memory of the GPUs, in which ranks write to each other
};

/// Parses "auto", "host" or "peer".  Errors: kUsage.
Result<Transport> ParseTransport(const std::string& text);

/// How an all-reduce moves its parts. All give the same bits: integer sums by associativity, float sums because every
/// element is added in ascending rank order.
enum class Algorithm {
  kOneShot,   // every rank gets all parts: one wait, N reads an element on each rank
  kTwoShot,   // every rank sums an equal share and all get the result: two waits, N / ranks reads
  kWeighted,  // the same with shares by weight, in chunks, of which each moves its parts while the one before moves
              // totals
};
const char* AlgorithmName(Algorithm algorithm);
/// Parses "one-shot", "two-shot" or "weighted".  Errors: kUsage.
Result<Algorithm> ParseAlgorithm(const std::string& text);

/// Which algorithm sums of one type take, by their size.
struct Forms {
  int64_t one_shot_bytes = 0;          // up to here one-shot
  int64_t weighted_bytes = INT64_MAX;  // and from here weighted
  Weights weights;                     // of the ranks, there

  Algorithm Choose(int64_t bytes) const {
    return bytes <= one_shot_bytes   ? Algorithm::kOneShot
           : bytes >= weighted_bytes ? Algorithm::kWeighted
                                     : Algorithm::kTwoShot;
  }
  /// The weights that an algorithm shares sums out by.
  Weights Of(Algorithm algorithm) const {
    return algorithm == Algorithm::kWeighted ? weights : Weights::Equal(weights.ranks());
  }
};

}  // namespace trivet::comm
