// SPDX-License-Identifier: Apache-2.0
// Settings of an engine by name: set in its options, and read back from the objects that run.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/engine.h"
#include "proof/knobs.h"

namespace trivet::engine {

/// Sets whose bits the sums have: "exact", "portable" or "fast".  Errors: kUsage.
Status SetNumerics(const std::string& text, EngineOptions* options);

/// What settings are read from.
struct LiveEngine {
  const EngineOptions& options;  // as asked for
  const RankOptions& planned;
  const OpenedModel& model;
  const plan::Layout& layout;
  const std::deque<sched::Scheduler>& schedulers;  // by replica
  RankWorker& worker;                              // rank 0's
  const Ranks& ranks;                              // the others
};

/// Every setting of a run. One that shows nowhere, such as how no other ranks were started, is not among them.
std::vector<proof::Knob> ReadKnobs(const LiveEngine& live);

/// A setting that somebody asks for by name.
struct AskedKnob {
  std::string path;
  Json value;
  std::string dir;  // where files that it names are, unless by an absolute path
};

/// Sets it in the options.
/// Errors:  kUsage for a name that there is not, listing those that there are, or a value of another kind; those of
///          reading a map of experts; kUnsupported for what no recorded run can have.
Status SetKnob(const AskedKnob& asked, EngineOptions* options);

/// What became of settings that were asked for, by what the engine has.
std::vector<proof::Application> Apply(const std::vector<AskedKnob>& asked, const std::vector<proof::Knob>& live);
/// The same where no engine came up: `varied`, or with an empty one every setting, is to blame, and the rest was not
/// seen.
std::vector<proof::Application> NotApplied(const std::vector<AskedKnob>& asked, const std::string& varied,
                                           const Error& error);

}  // namespace trivet::engine
