// SPDX-License-Identifier: Apache-2.0
// A model whose axes divide by a rank count, for engines that cut evenly (docs/sharding.md says what is neutral there).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "export/output_model.h"
#include "export/source.h"
#include "plan/layout.h"

namespace trivet::exporter {

/// What to fill up.
struct PadOptions {
  int64_t ranks = 1;
  bool vocab = false;  // the vocabulary, too: only for engines that mask ids beyond the real ones
};

/// One axis of the padded model.
struct PaddedAxis {
  std::string axis;               // as in plan::AxisPlan
  std::string what;               // what is counted, such as "KV heads"
  int64_t stock = 0, padded = 0;  // of what is counted
};

/// A plan and what it does.
struct PadPlan {
  OutputModel model;
  plan::Geometry geometry;  // of the padded model
  std::vector<PaddedAxis> axes;
  int64_t padded_tensors = 0;  // tensors with pads
  int64_t tensors = 0;         // of the padded model
  int64_t elements = 0;        // elements of the source, each of which is written once
  int64_t pads = 0;            // elements that are zero because no element of the source is there
  std::vector<std::string> notices;
};

/// Plans the padded form of a model; nothing is read or written. Geometry and places are those of the planner at
/// pad_to = ranks, experts cut in width.
/// Errors:  kUsage for a rank count outside 1..16; kUnsupported for a source that is quantised or no directory, or that
///          holds a tensor of unknown geometry; kInfeasible names the rule of other engines that the padded geometry
///          breaks.
Result<PadPlan> PlanPad(const Source& source, const PadOptions& options);

}  // namespace trivet::exporter
