// SPDX-License-Identifier: Apache-2.0
// Where config, generation config and tokenizer name the same tokens, they must agree.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/config_file.h"
#include "engine/prompts.h"

namespace trivet::engine {

/// One sentence for each disagreement: a vocabulary larger than the model's, and ids of bos, eos and pad that no token
/// has or that differ between config, generation config and tokenizer. Lists of end tokens agree when they share one.
/// End tokens that DropImpossibleStops has taken out of `files` have had their notice and are no defect.
///   vocab   rows of the embedding; 0 when they are not known
std::vector<std::string> TokenDefects(const checkpoint::ModelFiles& files, const Prompts& prompts, int64_t vocab);

}  // namespace trivet::engine
