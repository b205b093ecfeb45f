// SPDX-License-Identifier: Apache-2.0
#include "plan/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/str.h"
#include "plan/cut_rule.h"
#include "plan/placement_record.h"

namespace trivet::plan {
namespace {

struct SemanticsRow {
  PlacementSemantics semantics;
  const char* name;
};
constexpr SemanticsRow kSemantics[] = {{PlacementSemantics::kGlobal, "global"},
                                       {PlacementSemantics::kRankLocal, "rank_local"}};

struct StrategyRow {
  PlacementStrategy strategy;
  const char* name;
};
constexpr StrategyRow kStrategies[] = {{PlacementStrategy::kIdentity, "identity"},
                                       {PlacementStrategy::kBlock, "block"},
                                       {PlacementStrategy::kInterleave, "interleave"},
                                       {PlacementStrategy::kIrregular, "irregular"}};

// Bytes that a digest covers: numbers as 64 bits, little end first; texts with their length before them.
class Canonical {
 public:
  void Add(int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(number) >> shift & 255));
    }
  }
  void Add(std::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
  }
  std::string Digest() const { return fmt::format("xxh3:{:016x}", Hash64(bytes_)); }

 private:
  std::vector<std::byte> bytes_;
};

// What every way to make a map asks for.
Status CheckAsked(int64_t experts, int64_t ep_size, const PlacementLabel& label) {
  const struct {
    const char* what;
    int64_t found;
  } rows[] = {{"--experts", experts}, {"--ep", ep_size}};
  for (const auto& row : rows) {
    if (row.found >= 1 && row.found <= kMostExperts) continue;
    return MakeError(Code::kUsage, fmt::format("{}: expected 1 to {}, found {}; choose another count", row.what,
                                               kMostExperts, row.found));
  }
  if (IsUtf8(label.version)) return {};  // a file holds nothing else
  return MakeError(Code::kUsage, fmt::format("--label: expected UTF-8, found \"{}\"; choose another label",
                                             Quote(RepairUtf8(label.version))));
}

Placement Make(PlacementStrategy strategy, std::string origin, const PlacementLabel& label,
               std::vector<std::vector<int64_t>> tables) {
  Placement placement;
  placement.semantics = label.semantics;
  placement.strategy = strategy;
  placement.origin = std::move(origin);
  placement.tables = std::move(tables);
  placement.version = label.version;
  if (!label.version.empty()) return placement;
  const size_t digits = placement.ContentDigest().find(':') + 1;
  placement.version = fmt::format("{}.ep{}.{}", StrategyName(strategy), placement.ep_size(),
                                  placement.ContentDigest().substr(digits, 8));
  return placement;
}

Error NotAMap(std::string_view what, const Verdict& verdict) {
  return MakeError(Code::kInvalid, fmt::format("{}: {}", what, verdict.sentence));
}

}  // namespace

const char* SemanticsName(PlacementSemantics semantics) {
  for (const SemanticsRow& row : kSemantics) {
    if (row.semantics == semantics) return row.name;
  }
  return "unknown";
}

const char* StrategyName(PlacementStrategy strategy) {
  for (const StrategyRow& row : kStrategies) {
    if (row.strategy == strategy) return row.name;
  }
  return "unknown";
}

Result<PlacementSemantics> ParseSemantics(std::string_view name) {
  for (const SemanticsRow& row : kSemantics) {
    if (row.name == name) return row.semantics;
  }
  return MakeError(Code::kUsage,
                   fmt::format("semantics: expected global or rank_local, found \"{}\"; choose one", Quote(name)));
}

Result<PlacementStrategy> ParseStrategy(std::string_view name) {
  for (const StrategyRow& row : kStrategies) {
    if (row.name == name) return row.strategy;
  }
  return MakeError(Code::kUsage, fmt::format("strategy: expected identity, block, interleave or irregular, found "
                                             "\"{}\"; choose one",
                                             Quote(name)));
}

Result<Placement> Placement::Identity(int64_t experts, const PlacementLabel& label) {
  TRY(CheckAsked(experts, 1, label));
  std::vector<int64_t> table(static_cast<size_t>(experts));
  std::iota(table.begin(), table.end(), 0);
  return Make(PlacementStrategy::kIdentity, "identity", label, {std::move(table)});
}

Result<Placement> Placement::FromLogicalToPhysical(const std::vector<int64_t>& list, std::vector<int64_t> sizes,
                                                   const PlacementLabel& label) {
  const auto experts = static_cast<int64_t>(list.size());
  if (sizes.empty()) sizes = {experts};
  TRY(CheckAsked(experts, static_cast<int64_t>(sizes.size()), label));
  const Verdict verdict = CheckPermutation(list);
  if (!verdict.passed()) return NotAMap("logical_to_physical", verdict);
  int64_t left = experts;
  for (const int64_t size : sizes) left = size < 0 || size > left ? -1 : left - size;
  if (left != 0) {
    return MakeError(Code::kInvalid, fmt::format("table sizes: expected counts that add up to {} experts, found "
                                                 "others; correct the sizes",
                                                 experts));
  }
  std::vector<int64_t> expert_at(list.size());
  for (size_t e = 0; e < list.size(); ++e) expert_at[static_cast<size_t>(list[e])] = static_cast<int64_t>(e);
  std::vector<std::vector<int64_t>> tables;
  auto next = expert_at.begin();
  for (const int64_t size : sizes) {
    tables.emplace_back(next, next + size);
    next += size;
  }
  return Make(PlacementStrategy::kIrregular, "logical_to_physical", label, std::move(tables));
}

Result<Placement> Placement::FromPairs(const std::vector<ExpertAddress>& addresses, int64_t ep_size,
                                       const PlacementLabel& label) {
  const int64_t most = ep_size == 0 ? kMostExperts : ep_size;
  TRY(CheckAsked(static_cast<int64_t>(addresses.size()), most, label));
  const Verdict verdict = CheckAddresses(addresses, most);
  if (!verdict.passed()) return NotAMap("pairs", verdict);
  if (ep_size == 0) {
    for (const ExpertAddress& one : addresses) ep_size = std::max(ep_size, one.ep_rank + 1);
  }
  std::vector<std::vector<int64_t>> tables(static_cast<size_t>(ep_size));
  for (const ExpertAddress& one : addresses) tables[static_cast<size_t>(one.ep_rank)].emplace_back();
  for (size_t e = 0; e < addresses.size(); ++e) {
    std::vector<int64_t>& table = tables[static_cast<size_t>(addresses[e].ep_rank)];
    table[static_cast<size_t>(addresses[e].local_slot)] = static_cast<int64_t>(e);
  }
  return Make(PlacementStrategy::kIrregular, "pairs", label, std::move(tables));
}

Result<Placement> Placement::FromEpConfig(int64_t experts, int64_t ep_size, PlacementStrategy strategy,
                                          const PlacementLabel& label) {
  TRY(CheckAsked(experts, ep_size, label));
  std::vector<std::vector<int64_t>> tables(static_cast<size_t>(ep_size));
  if (strategy == PlacementStrategy::kBlock) {
    const std::vector<Share> shares = DealEven({experts, experts}, ep_size);
    for (size_t r = 0; r < shares.size(); ++r) {
      tables[r].resize(static_cast<size_t>(shares[r].count));
      std::iota(tables[r].begin(), tables[r].end(), shares[r].begin);
    }
  } else if (strategy == PlacementStrategy::kInterleave) {
    for (int64_t e = 0; e < experts; ++e) tables[static_cast<size_t>(e % ep_size)].push_back(e);
  } else {
    return MakeError(Code::kUsage, fmt::format("strategy: expected block or interleave, found {}; choose one",
                                               StrategyName(strategy)));
  }
  return Make(strategy, "ep config", label, std::move(tables));
}

Result<Placement> Placement::FromPlanFragment(const Json& fragment, std::string_view what) {
  TRY_ASSIGN(const PlacementRecord record, ParsePlacementRecord(fragment, what));
  return MakePlacement(record, what);
}

Result<Placement> Placement::Random(int64_t experts, int64_t ep_size, uint64_t seed, const PlacementLabel& label) {
  TRY(CheckAsked(experts, ep_size, label));
  // The standard fixes the engine's numbers, but not those of its distributions.
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  std::vector<std::vector<int64_t>> tables(static_cast<size_t>(ep_size));
  for (int64_t e = 0; e < experts; ++e) {
    std::vector<int64_t>& table = tables[static_cast<size_t>(below(ep_size))];
    table.insert(table.begin() + below(static_cast<int64_t>(table.size()) + 1), e);
  }
  return Make(PlacementStrategy::kIrregular, fmt::format("random seed {}", seed), label, std::move(tables));
}

int64_t Placement::experts() const {
  size_t count = 0;
  for (const std::vector<int64_t>& table : tables) count += table.size();
  return static_cast<int64_t>(count);
}

std::vector<int64_t> Placement::Sizes() const {
  std::vector<int64_t> sizes;
  for (const std::vector<int64_t>& table : tables) sizes.push_back(static_cast<int64_t>(table.size()));
  return sizes;
}

std::vector<ExpertAddress> Placement::Addresses() const {
  std::vector<ExpertAddress> addresses(static_cast<size_t>(experts()));
  for (size_t r = 0; r < tables.size(); ++r) {
    for (size_t s = 0; s < tables[r].size(); ++s) {
      addresses[static_cast<size_t>(tables[r][s])] = {static_cast<int64_t>(r), static_cast<int64_t>(s)};
    }
  }
  return addresses;
}

std::vector<int64_t> Placement::LogicalToPhysical() const {
  std::vector<int64_t> list(static_cast<size_t>(experts()));
  int64_t id = 0;
  for (const std::vector<int64_t>& table : tables) {
    for (const int64_t expert : table) list[static_cast<size_t>(expert)] = id++;
  }
  return list;
}

std::vector<int64_t> Placement::PhysicalIds() const {
  if (semantics == PlacementSemantics::kGlobal) return LogicalToPhysical();
  std::vector<int64_t> slots;
  for (const ExpertAddress& address : Addresses()) slots.push_back(address.local_slot);
  return slots;
}

std::string Placement::ContentDigest() const {
  Canonical bytes;
  bytes.Add(kPlacementSchema);
  bytes.Add(SemanticsName(semantics));
  bytes.Add(experts());
  bytes.Add(ep_size());
  for (const std::vector<int64_t>& table : tables) bytes.Add(static_cast<int64_t>(table.size()));
  for (const std::vector<int64_t>& table : tables) {
    for (const int64_t expert : table) bytes.Add(expert);
  }
  return bytes.Digest();
}

std::string Placement::ProvenanceDigest() const {
  Canonical bytes;
  bytes.Add(ContentDigest());
  bytes.Add(version);
  bytes.Add(StrategyName(strategy));
  bytes.Add(origin);
  return bytes.Digest();
}

Json Placement::PlanFragment() const {
  std::vector<int64_t> ep_ranks;
  for (const ExpertAddress& address : Addresses()) ep_ranks.push_back(address.ep_rank);
  return {{"version", version},
          {"logical_to_physical", LogicalToPhysical()},
          {"schema", kPlacementSchema},
          {"semantics", SemanticsName(semantics)},
          {"experts", experts()},
          {"ep_size", ep_size()},
          {"ep_rank", std::move(ep_ranks)},
          {"physical", PhysicalIds()},
          {"tables", tables},
          {"replicas", "none"},
          {"strategy", StrategyName(strategy)},
          {"origin", origin},
          {"content", ContentDigest()},
          {"provenance", ProvenanceDigest()}};
}

std::vector<int64_t> FoldGroups(int64_t ranks, int64_t ep_size) {
  CHECK(ep_size >= 1 && ep_size <= ranks);
  const std::vector<Share> shares = DealEven({ranks, ranks}, ep_size);
  std::vector<int64_t> groups;
  for (size_t g = 0; g < shares.size(); ++g) {
    groups.insert(groups.end(), static_cast<size_t>(shares[g].count), static_cast<int64_t>(g));
  }
  return groups;
}

Result<Placement> ReadPlacement(const std::string& path) {
  TRY_ASSIGN(const Json fragment, ReadJsonFile(path));
  return Placement::FromPlanFragment(fragment, path);
}

}  // namespace trivet::plan
