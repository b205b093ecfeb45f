// SPDX-License-Identifier: Apache-2.0
// Decisions as they are recorded slot by slot: found, and two of them set side by side.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "proof/run.h"

namespace trivet::proof {

/// A decision with its slots; without a head where it is not recorded.
struct RecordedRoute {
  const record::RouteHead* head = nullptr;
  std::span<const record::RouteSlot> slots;
};

/// The decision as a rank, or the first rank that has it, recorded it.
RecordedRoute FindRoute(const RankRun& rank, const Decision& decision);
RecordedRoute FindRoute(const RecordedRun& run, const Decision& decision);

/// The bits of a number, as eight digits.
std::string Bits(float value);

/// Adds the first slot in which two records of a decision differ, and how near the choice was to another one: nothing
/// where one of them is not recorded.
void DescribeRoutes(const RecordedRoute& a, const RecordedRoute& b, Json* where, std::string* text);

}  // namespace trivet::proof
