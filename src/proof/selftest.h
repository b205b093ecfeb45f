// SPDX-License-Identifier: Apache-2.0
// The verifier against made-up runs with one defect each, against runs that look odd and are in order, and against runs
// with a byte changed: what it must find, and what it must leave alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "proof/verify.h"

namespace trivet::proof {

/// One case.
struct SelftestCase {
  std::string name;  // of the list in docs/proof.md
  std::string what;
  Verdict expected = Verdict::kPass;
  std::string dimension;  // that must be named, or empty
  std::function<std::vector<NamedFiles>()> make;
  CompareOptions options = {};
};

/// Runs with one defect each, and pairs of defects of which the earlier gate must speak.
std::vector<SelftestCase> Negatives();
/// Runs in which nothing is wrong.
std::vector<SelftestCase> Controls();

/// Why a report is not what a case expects, or nothing.
std::string Unexpected(const SelftestCase& one, const Report& report);

/// What came of changing bytes.
struct Mutations {
  int64_t changed = 0;   // runs with one byte changed
  int64_t accepted = 0;  // of these, taken for in order: must be none
  std::string first;     // the first of them
};
/// Changes one byte of a sealed run `count` times, each time another one, and verifies.
Mutations MutateBytes(int64_t count, uint64_t seed);

/// Everything above.
///   text  one line for each case that failed, and a summary
struct SelftestResult {
  bool passed = true;
  Json json;
  std::string text;
};
/// Runs it.
SelftestResult Selftest();

}  // namespace trivet::proof
