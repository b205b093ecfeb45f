// SPDX-License-Identifier: Apache-2.0
#include "plan/placement_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/str.h"

namespace trivet::plan {
namespace {

Verdict Invalid(std::string sentence) { return {kInvalidPlacementMap, std::move(sentence)}; }

// A value, or null for one that is absent; `where` is its place in the record, such as "\"tables\"[1][2]".
Error WrongType(std::string_view what, std::string_view where, const char* expected, const Json* found) {
  return MakeError(Code::kInvalid,
                   fmt::format("{}: {}: expected {}, found {}; make the map anew with `trivet "
                               "placement make`",
                               what, where, expected, found == nullptr ? "nothing" : Quote(DumpJson(*found), 80)));
}

std::string Key(std::string_view key) { return fmt::format("\"{}\"", key); }

Result<std::vector<int64_t>> Integers(const Json* list, const std::string& where, std::string_view what) {
  if (list == nullptr || !list->is_array()) return WrongType(what, where, "a list of integers", list);
  if (static_cast<int64_t>(list->size()) > kMostExperts) {
    return MakeError(Code::kInvalid, fmt::format("{}: {}: expected at most {} experts, found {}; see "
                                                 "docs/placement.md",
                                                 what, where, kMostExperts, list->size()));
  }
  std::vector<int64_t> numbers;
  for (const Json& one : *list) {
    if (!IsInt64(one)) {
      return WrongType(what, fmt::format("{}[{}]", where, numbers.size()), "a 64-bit integer", &one);
    }
    numbers.push_back(one.get<int64_t>());
  }
  return numbers;
}

Result<std::vector<int64_t>> NeedIntegers(const Json& object, std::string_view key, std::string_view what) {
  return Integers(Find(object, key), Key(key), what);
}

Result<std::string> NeedString(const Json& object, std::string_view key, std::string_view what) {
  const Json* value = Find(object, key);
  if (value == nullptr || !value->is_string()) return WrongType(what, Key(key), "a text", value);
  return value->get<std::string>();
}

// The members that came with schema placement.v1.
Status ParseNewKeys(const Json& fragment, std::string_view what, PlacementRecord* record) {
  TRY_ASSIGN(record->semantics, NeedString(fragment, "semantics", what));
  TRY_ASSIGN(record->strategy, NeedString(fragment, "strategy", what));
  TRY_ASSIGN(record->origin, NeedString(fragment, "origin", what));
  TRY_ASSIGN(record->content, NeedString(fragment, "content", what));
  TRY_ASSIGN(record->provenance, NeedString(fragment, "provenance", what));
  TRY_ASSIGN(record->experts, NeedInt(fragment, "experts", what));
  TRY_ASSIGN(record->ep_size, NeedInt(fragment, "ep_size", what));
  TRY_ASSIGN(record->ep_rank, NeedIntegers(fragment, "ep_rank", what));
  TRY_ASSIGN(record->physical, NeedIntegers(fragment, "physical", what));
  const Json* tables = Find(fragment, "tables");
  if (tables == nullptr || !tables->is_array()) {
    return WrongType(what, Key("tables"), "a list of lists of experts", tables);
  }
  if (static_cast<int64_t>(tables->size()) > kMostExperts) {
    return MakeError(Code::kInvalid, fmt::format("{}: \"tables\": expected at most {} groups, found {}; see "
                                                 "docs/placement.md",
                                                 what, kMostExperts, tables->size()));
  }
  record->tables.emplace();
  for (const Json& table : *tables) {
    const std::string where = fmt::format("\"tables\"[{}]", record->tables->size());
    TRY_ASSIGN(std::vector<int64_t> slots, Integers(&table, where, what));
    record->tables->push_back(std::move(slots));
  }
  TRY_ASSIGN(const std::string replicas, NeedString(fragment, "replicas", what));
  if (replicas == "none") return {};
  return MakeError(Code::kUnsupported,
                   fmt::format("{}: expected replicas \"none\", found \"{}\"; give every expert one "
                               "slot",
                               what, Quote(replicas)));
}

// Addresses by the declared reading, of a record whose lengths are right. In the global one, ids before a group's own
// give a slot below 0, and those behind it a hole or a slot that is another's.
std::vector<ExpertAddress> AddressesOf(const PlacementRecord& map) {
  std::vector<int64_t> first(static_cast<size_t>(map.ep_size), 0);
  if (map.semantics == SemanticsName(PlacementSemantics::kGlobal)) {
    std::vector<int64_t> sizes(first.size(), 0);
    for (const int64_t rank : map.ep_rank) ++sizes[static_cast<size_t>(rank)];
    std::exclusive_scan(sizes.begin(), sizes.end(), first.begin(), int64_t{0});
  }
  std::vector<ExpertAddress> addresses;
  for (size_t e = 0; e < map.physical.size(); ++e) {
    addresses.push_back({map.ep_rank[e], map.physical[e] - first[static_cast<size_t>(map.ep_rank[e])]});
  }
  return addresses;
}

// The map of a record that has passed the gates for addresses.
Placement PlacementOf(const PlacementRecord& map) {
  const PlacementSemantics semantics = ParseSemantics(map.semantics).value();
  Placement placement = Placement::FromPairs(AddressesOf(map), map.ep_size, {{}, semantics}).value();
  placement.version = map.version;
  placement.strategy = ParseStrategy(map.strategy).value();
  placement.origin = map.origin;
  return placement;
}

Verdict CheckForm(const PlacementRecord& map) {
  const Result<PlacementSemantics> semantics = ParseSemantics(map.semantics);
  if (!semantics.ok()) return Invalid(semantics.error().message);
  const Result<PlacementStrategy> strategy = ParseStrategy(map.strategy);
  if (!strategy.ok()) return Invalid(strategy.error().message);
  const struct {
    const char* what;
    int64_t found;
  } counts[] = {{"experts", map.experts}, {"ep_size", map.ep_size}};
  for (const auto& count : counts) {
    if (count.found >= 1 && count.found <= kMostExperts) continue;
    return Invalid(
        fmt::format("{}: expected 1 to {}, found {}; make the map anew", count.what, kMostExperts, count.found));
  }
  const struct {
    const char* what;
    const std::vector<int64_t>& list;
  } lists[] = {{"logical_to_physical", map.logical_to_physical}, {"ep_rank", map.ep_rank}, {"physical", map.physical}};
  for (const auto& list : lists) {
    if (static_cast<int64_t>(list.list.size()) == map.experts) continue;
    return Invalid(
        fmt::format("{}: expected {} experts, found {}; make the map anew", list.what, map.experts, list.list.size()));
  }
  for (size_t e = 0; e < map.ep_rank.size(); ++e) {
    if (map.ep_rank[e] >= 0 && map.ep_rank[e] < map.ep_size) continue;
    return Invalid(fmt::format("expert {}: expected a group of 0 to {}, found {}; make the map anew", e,
                               map.ep_size - 1, map.ep_rank[e]));
  }
  return {};
}

Verdict CheckReading(const PlacementRecord& map) {
  if (map.semantics == SemanticsName(PlacementSemantics::kGlobal)) {
    Verdict verdict = CheckPermutation(map.physical, ", or declare rank-local ids");
    if (!verdict.passed()) return verdict;
  }
  return CheckAddresses(AddressesOf(map), map.ep_size);
}

Verdict CheckFlatList(const PlacementRecord& map) {
  Verdict verdict = CheckPermutation(map.logical_to_physical);
  if (!verdict.passed()) return verdict;
  const std::vector<int64_t> derived = PlacementOf(map).LogicalToPhysical();
  for (size_t e = 0; e < derived.size(); ++e) {
    if (derived[e] == map.logical_to_physical[e]) continue;
    return Invalid(
        fmt::format("logical_to_physical: expected the global id {} for expert {}, which its group and slot "
                    "give, found {}; make the map anew",
                    derived[e], e, map.logical_to_physical[e]));
  }
  return {};
}

Verdict CheckTables(const PlacementRecord& map) {
  if (!map.tables) return {};
  std::vector<ExpertAddress> seen(static_cast<size_t>(map.experts));
  for (size_t r = 0; r < map.tables->size(); ++r) {
    const std::vector<int64_t>& table = (*map.tables)[r];
    for (size_t s = 0; s < table.size(); ++s) {
      if (table[s] < 0 || table[s] >= map.experts) {
        return Invalid(
            fmt::format("tables: expected one of experts 0 to {} in slot {} of group {}, found {}; fill the "
                        "hole",
                        map.experts - 1, s, r, table[s]));
      }
      ExpertAddress& before = seen[static_cast<size_t>(table[s])];
      if (before.ep_rank >= 0) {
        return Invalid(
            fmt::format("tables: expected expert {} once, found it in slot {} of group {} and in slot {} of "
                        "group {}; replicas are not supported, keep one",
                        table[s], before.local_slot, before.ep_rank, s, r));
      }
      before = {static_cast<int64_t>(r), static_cast<int64_t>(s)};
    }
  }
  if (*map.tables == PlacementOf(map).tables) return {};
  return Invalid("tables: expected the slots that \"ep_rank\" and \"physical\" give, found others; make the map anew");
}

Verdict CheckStrategy(const PlacementRecord& map) {
  const Placement placement = PlacementOf(map);
  Result<Placement> rule = placement.strategy == PlacementStrategy::kIdentity
                               ? Placement::Identity(map.experts)
                               : Placement::FromEpConfig(map.experts, map.ep_size, placement.strategy);
  if (placement.strategy == PlacementStrategy::kIrregular || rule.value().tables == placement.tables) return {};
  return Invalid(
      fmt::format("strategy: expected the map that {} gives for {} experts in {} groups, found another; call "
                  "it irregular",
                  map.strategy, map.experts, map.ep_size));
}

Verdict CheckDigests(const PlacementRecord& map) {
  const Placement placement = PlacementOf(map);
  const struct {
    const char* what;
    const std::optional<std::string>& found;
    std::string expected;
  } rows[] = {{"content", map.content, placement.ContentDigest()},
              {"provenance", map.provenance, placement.ProvenanceDigest()}};
  for (const auto& row : rows) {
    if (!row.found || *row.found == row.expected) continue;
    return Invalid(
        fmt::format("{}: expected the digest {}, found \"{}\"; the map was changed after it was made, make "
                    "it anew",
                    row.what, row.expected, Quote(*row.found)));
  }
  return {};
}

std::string AddressText(const ExpertAddress& address) {
  return fmt::format("slot {} of group {}", address.local_slot, address.ep_rank);
}

}  // namespace

const char* PlacementVerdictName(int code) {
  if (code == kInvalidPlacementMap) return "INVALID_PLACEMENT_MAP";
  if (code == kPlacementVersionMismatch) return "PLACEMENT_MAP_VERSION_MISMATCH";
  return "PASS";
}

Verdict CheckPermutation(const std::vector<int64_t>& ids, std::string_view or_else) {
  std::vector<int64_t> owner(ids.size(), -1);
  for (size_t e = 0; e < ids.size(); ++e) {
    if (ids[e] < 0 || ids[e] >= static_cast<int64_t>(ids.size())) {
      return Invalid(
          fmt::format("global ids: expected 0 to {}, found {} for expert {}; number the slots of all groups "
                      "one after the other",
                      ids.size() - 1, ids[e], e));
    }
    int64_t& before = owner[static_cast<size_t>(ids[e])];
    if (before >= 0) {
      return Invalid(
          fmt::format("global ids: expected each id once, found {} for experts {} and {}; give every expert "
                      "an id of its own{}",
                      ids[e], before, e, or_else));
    }
    before = static_cast<int64_t>(e);
  }
  return {};
}

Verdict CheckAddresses(const std::vector<ExpertAddress>& addresses, int64_t ep_size) {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> groups(static_cast<size_t>(ep_size));  // slot, expert
  for (size_t e = 0; e < addresses.size(); ++e) {
    const ExpertAddress& one = addresses[e];
    if (one.ep_rank < 0 || one.ep_rank >= ep_size || one.local_slot < 0) {
      return Invalid(fmt::format("expert {}: expected a slot of groups 0 to {}, found {}; correct its address", e,
                                 ep_size - 1, AddressText(one)));
    }
    groups[static_cast<size_t>(one.ep_rank)].emplace_back(one.local_slot, static_cast<int64_t>(e));
  }
  for (size_t r = 0; r < groups.size(); ++r) {
    std::sort(groups[r].begin(), groups[r].end());
    for (size_t s = 0; s < groups[r].size(); ++s) {
      const auto [slot, expert] = groups[r][s];
      if (slot == static_cast<int64_t>(s)) continue;
      if (slot < static_cast<int64_t>(s)) {
        return Invalid(
            fmt::format("slot {} of group {}: expected one expert, found {} and {}; give every expert a "
                        "slot of its own",
                        slot, r, groups[r][s - 1].second, expert));
      }
      return Invalid(
          fmt::format("group {}: expected its {} experts in slots 0 to {}, found none in slot {}; close the "
                      "hole",
                      r, groups[r].size(), groups[r].size() - 1, s));
    }
  }
  return {};
}

PlacementRecord RecordOf(const Placement& placement) {
  PlacementRecord record;
  record.version = placement.version;
  record.logical_to_physical = placement.LogicalToPhysical();
  record.semantics = SemanticsName(placement.semantics);
  record.strategy = StrategyName(placement.strategy);
  record.origin = placement.origin;
  record.experts = placement.experts();
  record.ep_size = placement.ep_size();
  for (const ExpertAddress& address : placement.Addresses()) record.ep_rank.push_back(address.ep_rank);
  record.physical = placement.PhysicalIds();
  record.tables = placement.tables;
  record.content = placement.ContentDigest();
  record.provenance = placement.ProvenanceDigest();
  return record;
}

Result<PlacementRecord> ParsePlacementRecord(const Json& fragment, std::string_view what) {
  if (!fragment.is_object()) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected an object with \"version\" and \"logical_to_physical\", "
                                                 "found {}; make the map with `trivet placement make`",
                                                 what, Quote(DumpJson(fragment), 80)));
  }
  PlacementRecord record;
  TRY_ASSIGN(record.version, NeedString(fragment, "version", what));
  TRY_ASSIGN(record.logical_to_physical, NeedIntegers(fragment, "logical_to_physical", what));
  if (Find(fragment, "schema") == nullptr) {  // an older fragment: one group, global ids
    for (const auto& [key, value] : fragment.items()) {
      if (key == "version" || key == "logical_to_physical") continue;
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected \"schema\" beside \"{}\", found none; say \"schema\": \"{}\" if it is "
                                   "such a map, or keep \"version\" and \"logical_to_physical\" alone",
                                   what, Quote(key), kPlacementSchema));
    }
    record.experts = static_cast<int64_t>(record.logical_to_physical.size());
    record.ep_rank.assign(record.logical_to_physical.size(), 0);
    record.physical = record.logical_to_physical;
    return record;
  }
  TRY_ASSIGN(const std::string schema, NeedString(fragment, "schema", what));
  if (schema != kPlacementSchema) {
    return MakeError(Code::kUnsupported, fmt::format("{}: expected schema {}, found \"{}\"; make the map anew", what,
                                                     kPlacementSchema, Quote(schema)));
  }
  TRY(ParseNewKeys(fragment, what, &record));
  return record;
}

Verdict CheckPlacementVersion(std::string_view version, std::string_view expected) {
  if (version == expected) return {};
  return {kPlacementVersionMismatch, fmt::format("version: expected \"{}\", found the map \"{}\"; use the map that the "
                                                 "run named",
                                                 Quote(expected), Quote(version))};
}

Verdict CheckPlacementStructure(const PlacementRecord& map) {
  // Each step relies on those before it.
  for (const auto check : {CheckForm, CheckReading, CheckFlatList, CheckTables, CheckStrategy, CheckDigests}) {
    Verdict verdict = check(map);
    if (!verdict.passed()) return verdict;
  }
  return {};
}

Verdict CheckPlacementRows(const Placement& placement, const std::vector<PlacementRow>& rows) {
  const std::vector<ExpertAddress> addresses = placement.Addresses();
  for (size_t i = 0; i < rows.size(); ++i) {
    const PlacementRow& row = rows[i];
    if (row.logical < -1 || row.logical >= static_cast<int64_t>(addresses.size())) {
      return Invalid(fmt::format("row {}: expected one of {} experts, found {}; the row is not of this model", i,
                                 addresses.size(), row.logical));
    }
    const ExpertAddress expected = row.logical < 0 ? ExpertAddress{} : addresses[static_cast<size_t>(row.logical)];
    if (row.address == expected) continue;
    return Invalid(fmt::format("row {}: expected {} for expert {}, found {}; it was dispatched by another map", i,
                               AddressText(expected), row.logical, AddressText(row.address)));
  }
  return {};
}

Verdict CheckPlacement(const PlacementRecord& map, const std::vector<PlacementRow>& rows) {
  for (const PlacementRow& row : rows) {
    Verdict verdict = CheckPlacementVersion(map.version, row.version);
    if (!verdict.passed()) return verdict;
  }
  Verdict verdict = CheckPlacementStructure(map);
  return verdict.passed() ? CheckPlacementRows(PlacementOf(map), rows) : verdict;
}

Result<Verdict> CheckPlacementFile(const Json& fragment, const std::optional<std::string>& expected,
                                   PlacementRecord* record) {
  const Json& version = Member(fragment, "version");
  if (expected && version.is_string()) {
    Verdict verdict = CheckPlacementVersion(version.get<std::string>(), *expected);
    if (!verdict.passed()) return verdict;
  }
  Result<PlacementRecord> parsed = ParsePlacementRecord(fragment, "map");
  if (!parsed.ok() && parsed.error().code == Code::kInvalid) return Invalid(parsed.error().message);
  TRY_ASSIGN(*record, std::move(parsed));
  return CheckPlacementStructure(*record);
}

Verdict CheckPlacementFits(const Placement& placement, int64_t experts, int64_t ranks) {
  if (placement.experts() != experts) {
    return Invalid(fmt::format("experts: expected the model's {}, found {}; make a map for this model", experts,
                               placement.experts()));
  }
  if (placement.ep_size() <= ranks) return {};
  return Invalid(fmt::format("ep_size: expected at most {}, found {} groups; use more ranks or fewer groups",
                             ranks == 1 ? "the one rank" : fmt::format("the {} ranks", ranks), placement.ep_size()));
}

Result<Placement> MakePlacement(const PlacementRecord& record, std::string_view what) {
  const Verdict verdict = CheckPlacementStructure(record);
  if (verdict.passed()) return PlacementOf(record);
  return MakeError(Code::kInvalid, fmt::format("{}: {}", what, verdict.sentence));
}

}  // namespace trivet::plan
