// SPDX-License-Identifier: Apache-2.0
// Settings of a run as they were asked for, planned, and read back from the objects that ran.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "proof/verdict.h"

namespace trivet::proof {

/// What has to be made anew for another value. Weakest first.
enum class Scope { kRequest, kEngine, kDistributed, kProcess };
/// "request", "engine_construction", "distributed_context" or "process".
const char* ScopeName(Scope scope);

/// What became of a setting. Worst last.
enum class Materialization {
  kApplied,       // what was asked for was read back from a live object
  kFallback,      // something else ran, and it is known what
  kUnobservable,  // nothing failed, and nothing shows the value
  kUnsupported,   // this program or machine cannot do it
  kError,         // what it asks for could not be built
};
/// "applied", "fallback", "unobservable", "unsupported" or "error".
const char* MaterializationName(Materialization status);

/// One setting of a run.
struct Knob {
  std::string path;  // such as "parallel.tp"
  Scope scope = Scope::kEngine;
  Json requested, materialized, actual;
  std::string evidence;  // where `actual` was read, or why it was not
  /// Whether `materialized` is another name for what was asked, such as the contract id for "exact".
  bool derived = false;
};

/// kApplied when the live object has what was planned, kUnobservable when it shows nothing, else kFallback.
Materialization StatusOf(const Knob& knob);
/// As StatusOf, and kFallback where another value than the one asked for was planned: for settings that somebody asked
/// for by name.
Materialization StatusOfAsked(const Knob& knob);

/// {"path", "scope", "requested", "materialized", "actual", "status", "evidence"}.
Json KnobJson(const Knob& knob, Materialization status);

/// A setting that a case of a plan asks for, and what became of it.
struct Application {
  Knob knob;
  Materialization status = Materialization::kError;
};

/// The worst of all; kError for none.
Materialization Aggregate(const std::vector<Application>& applications);

/// kKnobNotApplied, with path, status and reason of the first setting that forbids to run: every one that was not
/// applied, and kFallback only when `strict`.
Gate RequireExecutable(const std::vector<Application>& applications, bool strict);

}  // namespace trivet::proof
