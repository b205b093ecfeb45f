// SPDX-License-Identifier: Apache-2.0
// Routes as a file: which experts every token of a recorded run chose, and with which weights, for others; and the same
// from others, to force it.
#pragma once

#include <memory>
#include <string>

#include "base/backend.h"
#include "base/result.h"
#include "engine/open_model.h"
#include "model/forced_routes.h"
#include "proof/run_files.h"

namespace trivet::engine {

/// What a file of routes holds.
struct ExportedRoutes {
  size_t requests = 0, tokens = 0, layers = 0;
};

/// Writes a safetensors file: for request r the tensors tokens.r [T] int32, experts.r [T, L, K] int32 (logical ids, in
/// the order chosen) and weights.r [T, L, K] float32, with L the layers that have experts, listed in the metadata as
/// "layers".
///   files    a sealed run of level rows or full;  what: its name for messages
///   returns  what is in it
/// Errors:  kInvalid with the verdict where the run does not stand by itself, kUnsupported for level digest, kIo.
Result<ExportedRoutes> ExportRoutes(const proof::Files& files, const std::string& what, const std::string& path);

/// Reads such a file, for a run that forces its choices. `weights` may be absent, -1 for all experts of a decision
/// leaves it to the router, and the metadata "config", when there, is that of the model.
///   backend  of the run
/// Errors:  kNotFound, kIo; kInvalid names what is of another model, geometry or form; kUnsupported for a model without
///          experts, or a run on GPUs.
Result<std::unique_ptr<const model::RouteTable>> ReadRoutes(const std::string& path, const OpenedModel& model,
                                                            Backend backend);

}  // namespace trivet::engine
