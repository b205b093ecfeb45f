// SPDX-License-Identifier: Apache-2.0
// Made-up runs: what a small model would have recorded under any layout, also those that no engine of this version
// runs. Values are functions of layer, site and token, so runs of different layouts are equal unless somebody changes
// one.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/placement.h"
#include "proof/run.h"

namespace trivet::proof {

/// Which run.
struct SyntheticOptions {
  Coordinates sizes = {1, 1, 1, 1, 1};  // tp, cp, dp, pp, ep
  std::vector<Dimension> rank_order = {Dimension::kTp, Dimension::kCp, Dimension::kDp, Dimension::kPp};
  std::vector<Dimension> expert_group_over;  // empty, with ep in rank_order: ep multiplies the world
  bool sp = false, zigzag = false, cp_first = true;
  int64_t cp_stretch = 0;                 // as in TokenLayout
  std::vector<int64_t> lengths = {7, 5};  // positions of every request
  std::vector<int64_t> dp_of = {0, 0};    // and their dp coordinates
  record::Level level = record::Level::kFull;
  plan::PlacementStrategy strategy = plan::PlacementStrategy::kBlock;
  plan::PlacementSemantics semantics = plan::PlacementSemantics::kGlobal;
  int64_t step_tokens = 4;  // rows of one step: of the schedule, which must leave no trace
};

/// The model of all made-up runs; layer kSyntheticDelta has a state.
inline constexpr int64_t kSyntheticLayers = 4, kSyntheticDelta = 1, kSyntheticExperts = 6, kSyntheticTopK = 2,
                         kSyntheticHidden = 16;

/// Makes the run, as ParseRun would read it.
RecordedRun MakeSynthetic(const SyntheticOptions& options);

/// The decision of a layer and a token: head, and slots in `slots`.
record::RouteHead SyntheticRoute(const Decision& decision, std::vector<record::RouteSlot>* slots);

/// What decisions of made-up runs begin their digests with.
Digest SyntheticDomain();

}  // namespace trivet::proof
