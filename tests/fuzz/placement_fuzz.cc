// SPDX-License-Identifier: Apache-2.0
// Any JSON as a map of experts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "plan/placement_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trivet;
  const auto fragment = ParseJson(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!fragment.ok()) return 0;
  const auto record = plan::ParsePlacementRecord(*fragment, "fuzz");
  if (!record.ok()) return 0;
  const plan::Verdict verdict = plan::CheckPlacement(*record, {{record->version, 0, {0, 0}}});
  CHECK(verdict.code == 0 || verdict.code == plan::kInvalidPlacementMap);
  CHECK(verdict.passed() == verdict.sentence.empty());
  const auto map = plan::MakePlacement(*record, "fuzz");
  if (!map.ok()) return 0;
  std::vector<int64_t> ids = map->LogicalToPhysical();
  std::sort(ids.begin(), ids.end());
  for (size_t i = 0; i < ids.size(); ++i) CHECK(ids[i] == static_cast<int64_t>(i));
  const auto again = plan::Placement::FromPlanFragment(map->PlanFragment(), "again");
  CHECK(again.ok() && again->tables == map->tables && again->ProvenanceDigest() == map->ProvenanceDigest());
  return 0;
}
