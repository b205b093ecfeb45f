// SPDX-License-Identifier: Apache-2.0
// Routes as a file for others: which experts every token of a recorded run chose, and with which weights.
#pragma once

#include <string>

#include "base/result.h"
#include "proof/run_files.h"

namespace trivet::engine {

/// Writes a safetensors file: for request r the tensors tokens.r [T] int32, experts.r [T, L, K] int32 (logical ids, in
/// the order chosen) and weights.r [T, L, K] float32, with L the layers that have experts, listed in the metadata as
/// "layers".
///   files    a sealed run of level rows or full;  what: its name for messages
/// Errors:  kInvalid with the verdict where the run does not stand by itself, kUnsupported for level digest, kIo.
Status ExportRoutes(const proof::Files& files, const std::string& what, const std::string& path);

}  // namespace trivet::engine
