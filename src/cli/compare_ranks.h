// SPDX-License-Identifier: Apache-2.0
// The demonstration in small: the same tokens scored under two rank counts, compared byte for byte.
#pragma once

#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"

namespace trivet::cli {

/// Scores `tokens` under `options` and once more at `ranks` ranks, and prints how many logits were compared.
/// Errors:  kInvalid names the first logit that differs (position and vocabulary id), when one does.
Status CompareRanks(const engine::OpenedModel& model, const engine::EngineOptions& options, int64_t ranks,
                    const std::vector<TokenId>& tokens);

}  // namespace trivet::cli
