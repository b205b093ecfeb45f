// SPDX-License-Identifier: Apache-2.0
#include "comm/transport.h"

#include <fmt/format.h>

#include "base/str.h"

namespace trivet::comm {

Result<Transport> ParseTransport(const std::string& text) {
  if (text == "auto") return Transport::kAuto;
  if (text == "host") return Transport::kHost;
  if (text == "peer") return Transport::kPeer;
  return MakeError(Code::kUsage,
                   fmt::format("--transport: expected auto, host or peer, found \"{}\"; choose one", Quote(text)));
}

const char* AlgorithmName(Algorithm algorithm) {
  return algorithm == Algorithm::kOneShot ? "one-shot" : algorithm == Algorithm::kTwoShot ? "two-shot" : "weighted";
}

Result<Algorithm> ParseAlgorithm(const std::string& text) {
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kWeighted}) {
    if (text == AlgorithmName(algorithm)) return algorithm;
  }
  return MakeError(
      Code::kUsage,
      fmt::format("--algorithm: expected auto, one-shot, two-shot or weighted, found \"{}\"; choose one", Quote(text)));
}

}  // namespace trivet::comm
