// SPDX-License-Identifier: Apache-2.0
// A one-at-a-time plan of layouts: a base, and cases that each change one setting of it. The plan as data, and the
// report on what its runs turned out to be.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"
#include "proof/knobs.h"
#include "proof/run.h"
#include "proof/verify.h"
#include "record/records.h"

namespace trivet::proof {

/// One layout of a plan.
struct MatrixCase {
  std::string name;                                    // "base", or the setting that it changes: "parallel.tp=3"
  std::vector<std::pair<std::string, Json>> settings;  // all that it asks for
  std::string varied;                                  // the path of the one that differs from the base; empty: none
};

/// At most so many cases, the base included.
inline constexpr size_t kMaxMatrixCases = 256;

/// A plan.
struct MatrixPlan {
  std::string model;  // as a MODEL argument
  record::Level level = record::Level::kDigest;
  bool strict = true;  // nothing runs with a setting that fell back
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::string> texts;  // instead of tokens
  std::vector<MatrixCase> cases;   // the base first
};

/// Reads a plan (docs/proof.md has its form).
///   what     its name for messages
/// Errors:  kInvalid names the key; kUnsupported for another schema; kCapacity beyond kMaxMatrixCases.
Result<MatrixPlan> ParseMatrixPlan(const Json& plan, const std::string& what);

/// Collects what the cases of a plan turned out to be, in the plan's order.
class MatrixReport {
 public:
  /// A case that must not run, or could not.
  void Refuse(const MatrixCase& one, const std::vector<Application>& applications, const Finding& finding);
  /// A case that ran: judged alone and, but for the first one, against the first.
  ///   run      the folder that it recorded, and its files
  void Add(const MatrixCase& one, const std::vector<Application>& applications, const NamedFiles& run);

  /// The line for people on the last case.
  const std::string& line() const { return line_; }
  /// Whether there is a base that others can be compared with.
  bool has_base() const { return has_base_; }
  /// The whole: verdict and finding are those of the first case that has one.
  Report Finish() const;

 private:
  void Keep(const MatrixCase& one, const std::vector<Application>& applications, Json entry, const Gate& gate);

  RecordedRun base_;
  bool has_base_ = false;
  Finding finding_;
  Json first_;  // the finding as JSON
  Json cases_ = Json::array();
  std::string line_, text_;
};

}  // namespace trivet::proof
