// SPDX-License-Identifier: Apache-2.0
// What a file or a run claims about a placement, and the gates that judge the claim: version, then structure, then
// rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/placement.h"

namespace trivet::plan {

/// What a gate says: code 0, or a verdict's code and one sentence.
struct Verdict {
  int code = 0;
  std::string sentence;
  bool passed() const { return code == 0; }
};

/// Codes of the gates.
inline constexpr int kInvalidPlacementMap = 64;
inline constexpr int kPlacementVersionMismatch = 65;

/// "INVALID_PLACEMENT_MAP", "PLACEMENT_MAP_VERSION_MISMATCH" or "PASS".
const char* PlacementVerdictName(int code);

/// A map as it was written down: the right types, and nothing else is known of it. Lists are by logical expert.
struct PlacementRecord {
  std::string version;
  std::vector<int64_t> logical_to_physical;  // global ids
  std::string semantics = "global", strategy = "irregular", origin = "plan fragment";
  int64_t experts = 0, ep_size = 1;
  std::vector<int64_t> ep_rank;
  std::vector<int64_t> physical;                            // in the declared semantics
  std::optional<std::vector<std::vector<int64_t>>> tables;  // absent in older fragments
  std::optional<std::string> content, provenance;           // digests; absent in older fragments
};

/// One dispatched (token, expert) row. A padding row has no expert: -1 throughout.
struct PlacementRow {
  std::string_view version;  // of the map that the dispatch used
  int64_t logical = -1;
  ExpertAddress address;
};

/// 64 unless `ids` are 0..n-1, each once.
Verdict CheckPermutation(const std::vector<int64_t>& ids);

/// 64 unless the experts' addresses fill tables of `ep_size` groups: no slot twice, no hole.
Verdict CheckAddresses(const std::vector<ExpertAddress>& addresses, int64_t ep_size);

/// The claim that a valid map makes.
PlacementRecord RecordOf(const Placement& placement);

/// Reads a claim; members have the right types, whatever they say.
/// Errors:  kInvalid (a wrong type, a missing member, too many experts), kUnsupported (an unknown schema, replicas).
Result<PlacementRecord> ParsePlacementRecord(const Json& fragment, std::string_view what);

/// 65 unless the map has the version `expected`.
Verdict CheckPlacementVersion(const PlacementRecord& map, std::string_view expected);

/// 64 unless every expert has a slot of its own, no table has a hole, and all parts of the record agree with each
/// other.
Verdict CheckPlacementStructure(const PlacementRecord& map);

/// 64 unless every row's address is the map's answer for its expert, and padding rows have none.
Verdict CheckPlacementRows(const Placement& placement, const std::vector<PlacementRow>& rows);

/// All gates in order, of which the first that fails answers: the version that every row names, structure, rows.
Verdict CheckPlacement(const PlacementRecord& map, const std::vector<PlacementRow>& rows);

/// 64 unless the map places exactly `experts` experts in at most as many groups as there are ranks.
Verdict CheckPlacementFits(const Placement& placement, int64_t experts, int64_t ranks);

/// The map that a record describes.  Errors: kInvalid with the structure gate's sentence.
///   what     the record's name for messages
Result<Placement> MakePlacement(const PlacementRecord& record, std::string_view what);

}  // namespace trivet::plan
