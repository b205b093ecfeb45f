// SPDX-License-Identifier: Apache-2.0
// Everything that can be said about a model on disk, and every defect that can be found without running it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace trivet::engine {

/// What to look at besides headers and configuration.
struct InspectOptions {
  bool tensors = false;                                       // list every tensor with its use
  bool deep = false;                                          // read every weight and look for numbers that are none
  std::function<void(int64_t done, int64_t total)> progress;  // of the deep look, in bytes; may be empty
};

/// What inspection found. Parts that could not be read are absent from the facts and have a defect instead.
struct Inspection {
  Json facts = Json::object();
  std::vector<std::string> notices;  // odd and harmless
  std::vector<std::string> defects;  // one sentence each
};

/// Inspects the model in a directory or a GGUF file.
Inspection Inspect(const std::string& path, const InspectOptions& options);

}  // namespace trivet::engine
