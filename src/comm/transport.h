// SPDX-License-Identifier: Apache-2.0
// The ways by which ranks exchange what their devices hold, and how a sum goes over them.
#pragma once

#include <string>

#include "base/result.h"

namespace trivet::comm {

/// Where bytes pass.
enum class Transport {
  kAuto,  // kPeer where the group can, else kHost
  kHost,  // shared memory of the host
  kPeer,  // memory of the GPUs, in which ranks write to each other
};

/// Parses "auto", "host" or "peer".  Errors: kUsage.
Result<Transport> ParseTransport(const std::string& text);

/// How an all-reduce moves its parts. Both give the same bits: integer sums by associativity, float sums because every
/// element is added in ascending rank order.
enum class Algorithm {
  kOneShot,  // every rank gets all parts: one wait, N reads an element on each rank
  kTwoShot,  // every rank sums a share and all get the result: two waits, N / ranks reads
};
const char* AlgorithmName(Algorithm algorithm);

}  // namespace trivet::comm
