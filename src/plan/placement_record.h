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
///   or_else  what else to do about an id that two experts have, such as ", or ..."
Verdict CheckPermutation(const std::vector<int64_t>& ids, std::string_view or_else = "");

/// 64 unless the experts' addresses fill tables of `ep_size` groups: no slot twice, no hole.
Verdict CheckAddresses(const std::vector<ExpertAddress>& addresses, int64_t ep_size);

/// The claim that a valid map makes.
PlacementRecord RecordOf(const Placement& placement);

/// Reads a claim; members have the right types, whatever they say. Without a schema, a fragment has the two old keys
/// and no other.
/// Errors:  kInvalid (a wrong type, a missing member, too many experts), kUnsupported (an unknown schema, replicas).
Result<PlacementRecord> ParsePlacementRecord(const Json& fragment, std::string_view what);

/// 65 unless `version`, which is a map's, is the one `expected`.
Verdict CheckPlacementVersion(std::string_view version, std::string_view expected);

/// 64 unless every expert has a slot of its own, no table has a hole, and all parts of the record agree with each
/// other.
Verdict CheckPlacementStructure(const PlacementRecord& map);

/// 64 unless every row's address is the map's answer for its expert, and padding rows have none.
Verdict CheckPlacementRows(const Placement& placement, const std::vector<PlacementRow>& rows);

/// All gates in order, of which the first that fails answers: the version that every row names, structure, rows.
Verdict CheckPlacement(const PlacementRecord& map, const std::vector<PlacementRow>& rows);

/// What a file claims: 65 unless it has the version `expected`, if one is, whatever else it holds; then 64 unless it
/// parses and passes for structure.
///   record  where the claim goes; whole when the verdict passes
/// Errors:  kUnsupported as ParsePlacementRecord, which is no verdict.
Result<Verdict> CheckPlacementFile(const Json& fragment, const std::optional<std::string>& expected,
                                   PlacementRecord* record);

/// 64 unless the map places exactly `experts` experts in at most as many groups as there are ranks.
Verdict CheckPlacementFits(const Placement& placement, int64_t experts, int64_t ranks);

/// The map that a record describes.  Errors: kInvalid with the structure gate's sentence.
///   what     the record's name for messages
Result<Placement> MakePlacement(const PlacementRecord& record, std::string_view what);

}  // namespace trivet::plan
