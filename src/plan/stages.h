// SPDX-License-Identifier: Apache-2.0
// How layers are dealt to the stages of a pipeline. Knows no model: a price of consecutive layers in, ranges out.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace trivet::plan {

/// The layers [begin, end) that the ranks of one stage compute. The embedding belongs to the first stage, the final
/// norm and the head to the last.
struct Stage {
  int64_t begin = 0, end = 0;
  bool last = false;

  bool first() const { return begin == 0; }
  int64_t layers() const { return end - begin; }
  bool operator==(const Stage&) const = default;
};

/// What a stage costs, in any unit.
using StagePrice = std::function<double(const Stage&)>;

/// Contiguous stages of at least one layer each, of which the dearest is as cheap as can be; of such deals the one
/// whose last stages are the shortest.
///   stages  1 to `layers`
std::vector<Stage> DealStages(int64_t layers, int64_t stages, const StagePrice& price);

/// Stages of as many layers as `counts` says, one after the other.
std::vector<Stage> StagesOf(const std::vector<int64_t>& counts);

}  // namespace trivet::plan
