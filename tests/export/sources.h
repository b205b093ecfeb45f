// SPDX-License-Identifier: Apache-2.0
// Models to rewrite.
#pragma once

#include <string>

#include "export/source.h"
#include "tests/engine/small_model.h"
#include "tests/support/paths.h"

namespace trivet::exporter {

/// An opened model as the module takes it; the model outlives the result.
inline Source SourceOf(const engine::OpenedModel& model) {
  return {model.files, model.checkpoint, model.geometry, model.names};
}

/// Directory of a small model with golden logits.
}  // namespace trivet::exporter
