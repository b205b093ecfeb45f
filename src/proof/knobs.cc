// SPDX-License-Identifier: Apache-2.0
#include "proof/knobs.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::proof {

const char* ScopeName(Scope scope) {
  constexpr const char* kNames[] = {"request", "engine_construction", "distributed_context", "process"};
  return kNames[static_cast<size_t>(scope)];
}

const char* MaterializationName(Materialization status) {
  constexpr const char* kNames[] = {"applied", "fallback", "unobservable", "unsupported", "error"};
  return kNames[static_cast<size_t>(status)];
}

Materialization StatusOf(const Knob& knob) {
  if (knob.actual.is_null()) return Materialization::kUnobservable;
  return knob.actual == knob.materialized ? Materialization::kApplied : Materialization::kFallback;
}

Materialization StatusOfAsked(const Knob& knob) {
  const Materialization status = StatusOf(knob);
  if (status != Materialization::kApplied || knob.derived || knob.requested == knob.materialized) return status;
  return Materialization::kFallback;
}

Json KnobJson(const Knob& knob, Materialization status) {
  return {{"path", knob.path},           {"scope", ScopeName(knob.scope)},
          {"requested", knob.requested}, {"materialized", knob.materialized},
          {"actual", knob.actual},       {"status", MaterializationName(status)},
          {"evidence", knob.evidence}};
}

Materialization Aggregate(const std::vector<Application>& applications) {
  if (applications.empty()) return Materialization::kError;
  Materialization worst = Materialization::kApplied;
  for (const Application& one : applications) worst = std::max(worst, one.status);
  return worst;
}

Gate RequireExecutable(const std::vector<Application>& applications, bool strict) {
  const Materialization worst = Aggregate(applications);
  if (worst == Materialization::kApplied || (worst == Materialization::kFallback && !strict)) return std::nullopt;
  if (applications.empty()) return Found(Verdict::kKnobNotApplied, "no setting was asked for, so none applied");
  const auto first = std::find_if(applications.begin(), applications.end(),
                                  [&](const Application& one) { return one.status == worst; });
  return Found(Verdict::kKnobNotApplied,
               fmt::format("{}: asked for {}, found {} ({}): {}", first->knob.path, DumpJson(first->knob.requested),
                           DumpJson(first->knob.actual), MaterializationName(worst), first->knob.evidence),
               {{"knob", KnobJson(first->knob, worst)}});
}

}  // namespace trivet::proof
