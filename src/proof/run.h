// SPDX-License-Identifier: Apache-2.0
// A recorded run in memory: what its files say, before anybody judges whether it is so.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "proof/record_file.h"
#include "proof/run_files.h"
#include "proof/token_layout.h"
#include "record/records.h"

namespace trivet::proof {

/// What a rank's folder holds.
struct RankRun {
  int64_t folder = 0;  // the number in its name
  int64_t rank = 0;    // the one that it gives itself
  Json env, weights;
  std::vector<record::RowRecord> rows;
  std::vector<record::DecisionRecord> decisions;  // by layer and token
  Routes routes;
  std::vector<record::BoundRecord> bounds;  // by layer, site and token
  std::vector<record::DispatchRecord> dispatches;
  std::vector<record::ExecuteRecord> executions;
  std::vector<Json> collectives;
};

/// A run.
struct RecordedRun {
  record::Level level = record::Level::kOff;
  Json run, layout;
  TokenLayout tokens;
  std::vector<Json> placements;  // in the order of run.json's list of versions
  std::vector<RankRun> ranks;    // by folder
  LogitsRows logits;
  std::vector<int64_t> moe_layers, delta_layers;  // those with experts, and those with a state
};

/// Names of the gates that a run of a level has evidence for: the most that it may claim.
std::vector<std::string> ClaimsOf(record::Level level);

/// Reads the files of a run whose seal holds. kIncompleteArtifact for a file that its level asks for and that is not
/// there, kSchemaMismatch for one of another form, kLayoutUndeclared, kCorruptArtifact for claims beyond the evidence.
Gate ParseRun(const Files& files, RecordedRun* run);

}  // namespace trivet::proof
