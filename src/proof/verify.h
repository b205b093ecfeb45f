// SPDX-License-Identifier: Apache-2.0
// `trivet verify`: the gates of every run, then every run against the first, and a report for machines and one for
// people.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "proof/compare.h"
#include "proof/gates.h"

namespace trivet::proof {

/// A run and its name in messages.
struct NamedFiles {
  std::string name;
  Files files;
};

/// What was found.
struct Report {
  Finding finding;   // kPass when everything is as it must be
  Json json;         // all of it
  std::string text;  // lines for people
};

/// What a gate said: {"verdict", "name"}, and of a finding "message" and "where".
Json GateJson(const Gate& gate);

/// Judges one run, or several: the first one is what the others must equal.
///   runs  at least one
Report Verify(const std::vector<NamedFiles>& runs, const CompareOptions& options);

}  // namespace trivet::proof
