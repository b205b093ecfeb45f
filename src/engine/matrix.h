// SPDX-License-Identifier: Apache-2.0
// A plan of layouts carried out: every case computes the same tokens with an engine of its own, and is verified.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/open_model.h"
#include "proof/matrix.h"

namespace trivet::engine {

/// How a plan is carried out.
struct MatrixOptions {
  std::vector<std::vector<TokenId>> tokens;             // that every case computes, as one batch
  std::string plan_dir;                                 // where the plan's files are
  std::string dir;                                      // new folder for the recorded runs
  std::function<void(const std::string& line)> report;  // gets the line on every case when it is known
};

/// Whether all settings of a plan are ones that there are, and have values of their kind.  Errors: kUsage names the
/// setting; those of reading maps of experts.
Status CheckSettings(const proof::MatrixPlan& plan, const std::string& plan_dir);

/// Runs and verifies every case. What a case asks for is read back from its engine before it computes; one whose
/// settings were not applied is not run. Without a base that stands, nothing follows it.
/// Errors:  kUsage, kIo about the folder. What goes wrong with a case is in the report.
Result<proof::Report> RunMatrix(const OpenedModel& model, const proof::MatrixPlan& plan, const MatrixOptions& options);

}  // namespace trivet::engine
