// SPDX-License-Identifier: Apache-2.0
// From a log to a rank's record, and from a record to files.
#pragma once

#include <cstdint>
#include <functional>

#include "base/json.h"
#include "proof/run.h"
#include "record/run_log.h"

namespace trivet::proof {

/// What a rank says about itself besides its log.
struct RankFacts {
  int64_t rank = 0;
  std::vector<int64_t> group;    // ranks that it makes sums with, itself included
  std::vector<int64_t> context;  // ranks that it shares out sequences with, itself included
  Json env, weights;
  /// Who holds which units of the axis that is summed at a site of a layer; JSON null where nothing is cut.
  std::function<Json(record::Site site, int64_t layer)> owners;
};

/// A kind of sum or gather as the collectives file has it.
///   calls  how often it happened
Json CollectiveJson(const record::Collective& made, int64_t calls, const RankFacts& facts);

/// A rank's files for a run of `level`.
Files RankFiles(const RankRun& rank, record::Level level);

/// The files of the rank that has this log, which must be sorted, for a run of the log's level.
Files LogFiles(const record::RunLog& log, const RankFacts& facts);

/// All files of a run, sealed.
Files EncodeRun(const RecordedRun& run);

/// A JSON file's text.
std::string JsonText(const Json& json);

}  // namespace trivet::proof
