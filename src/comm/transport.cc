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

const char* AlgorithmName(Algorithm algorithm) { return algorithm == Algorithm::kOneShot ? "one-shot" : "two-shot"; }

}  // namespace trivet::comm
