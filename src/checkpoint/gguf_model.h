// SPDX-License-Identifier: Apache-2.0
// A GGUF file as a model directory: its metadata as the config that families read, its tensors under the names they ask
// for. One table row per architecture; nothing else here knows a model by name.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config_file.h"

namespace trivet::checkpoint {

/// Makes the configuration of an open GGUF file and renames the checkpoint's tensors. Stacks of experts come apart into
/// one tensor per expert.
///   path     the file's, for messages
/// Errors:  kUnsupported names the architecture or the option that is not supported; kInvalid the missing key.
Result<ModelFiles> BindGguf(const std::string& path, Checkpoint* checkpoint);

}  // namespace trivet::checkpoint
