// SPDX-License-Identifier: Apache-2.0
#include "plan/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "plan/placement_record.h"

namespace trivet::cli {
namespace {

using plan::ExpertAddress;
using plan::Placement;

struct MakeFlags {
  std::string model, strategy, pairs, flat, out, version;
  std::string semantics = "global";
  int64_t experts = 0, ep = 0;
  uint64_t seed = 0;
  bool random = false;
};

struct CheckFlags {
  std::string file, model, expected;
  int64_t ranks = 0;
  bool json = false;
};

struct ShowFlags {
  std::string file, other;
  bool json = false;
};

template <class... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
}

Result<int64_t> ExpertsOf(const std::string& model) {
  LayoutFlags flags;
  flags.model = model;
  TRY_ASSIGN(const std::string dir, flags.Directory());
  // A config alone is enough: made-up weights stand for those that are not there.
  const bool bare = std::filesystem::is_directory(dir);
  TRY_ASSIGN(const engine::OpenedModel opened,
             engine::OpenModel(model, dir, bare ? std::optional(checkpoint::DummyFormat::kBF16) : std::nullopt));
  if (opened.geometry.Uses(plan::ChannelMixer::kMoe)) return opened.geometry.moe.experts;
  return MakeError(Code::kUsage,
                   fmt::format("{}: expected a model with routed experts, found one without; choose another", model));
}

// A list of [group, slot], by logical expert.
Result<std::vector<ExpertAddress>> ReadPairs(const std::string& path) {
  TRY_ASSIGN(const Json list, ReadJsonFile(path));
  std::vector<ExpertAddress> pairs;
  const auto is_id = [](const Json& value) { return value.is_number_integer(); };
  for (const Json& pair : list) {
    if (!pair.is_array() || pair.size() != 2 || !is_id(pair[0]) || !is_id(pair[1])) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected a list of [group, slot] by expert, found {} for expert "
                                   "{}; correct it",
                                   path, Quote(DumpJson(pair)), pairs.size()));
    }
    pairs.push_back({pair[0].get<int64_t>(), pair[1].get<int64_t>()});
  }
  return pairs;
}

// A list of global ids, by logical expert.
Result<std::vector<int64_t>> ReadFlatList(const std::string& path) {
  TRY_ASSIGN(const Json list, ReadJsonFile(path));
  std::vector<int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer()) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected a list of global ids by expert, found {} for expert {}; "
                                   "correct it",
                                   path, Quote(DumpJson(id)), ids.size()));
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

Result<int64_t> CountExperts(const MakeFlags& flags) {
  if (flags.model.empty() == (flags.experts == 0)) {
    return MakeError(Code::kUsage,
                     "MODEL and --experts: expected one of them, found none or both; name a model or a "
                     "number of experts");
  }
  return flags.model.empty() ? flags.experts : ExpertsOf(flags.model);
}

Result<Placement> MakeMap(const MakeFlags& flags) {
  const int lists = (flags.pairs.empty() ? 0 : 1) + (flags.flat.empty() ? 0 : 1);
  const int ways = lists + (flags.random ? 1 : 0) + (flags.strategy.empty() ? 0 : 1);
  if (ways > 1) {
    return MakeError(
        Code::kUsage,
        "--strategy, --pairs, --logical-to-physical and --random: expected one of them, found more; choose "
        "one");
  }
  plan::PlacementLabel label{flags.version, {}};
  TRY_ASSIGN(label.semantics, plan::ParseSemantics(flags.semantics));
  if (!flags.pairs.empty()) {
    TRY_ASSIGN(const std::vector<ExpertAddress> pairs, ReadPairs(flags.pairs));
    return Placement::FromPairs(pairs, flags.ep, label);
  }
  const int64_t ep = flags.ep == 0 ? 1 : flags.ep;
  if (!flags.flat.empty()) {
    TRY_ASSIGN(const std::vector<int64_t> ids, ReadFlatList(flags.flat));
    TRY_ASSIGN(const Placement block,
               Placement::FromEpConfig(static_cast<int64_t>(ids.size()), ep, plan::PlacementStrategy::kBlock));
    return Placement::FromLogicalToPhysical(ids, block.Sizes(), label);
  }
  TRY_ASSIGN(const int64_t experts, CountExperts(flags));
  if (flags.random) return Placement::Random(experts, ep, flags.seed, label);
  TRY_ASSIGN(const plan::PlacementStrategy strategy,
             plan::ParseStrategy(flags.strategy.empty() ? "block" : flags.strategy));
  return Placement::FromEpConfig(experts, ep, strategy, label);
}

Status Make(const MakeFlags& flags) {
  TRY_ASSIGN(const Placement map, MakeMap(flags));
  if (!flags.model.empty() || flags.experts != 0) {
    TRY_ASSIGN(const int64_t experts, CountExperts(flags));
    const plan::Verdict verdict = plan::CheckPlacementFits(map, experts, map.ep_size());
    if (!verdict.passed()) return MakeError(Code::kInvalid, verdict.sentence);
  }
  const std::string text = DumpJson(map.PlanFragment(), 2) + "\n";
  if (flags.out.empty()) {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  TRY_ASSIGN(const std::string path, WritablePath(flags.out));
  TRY(WriteTextFile(path, text));
  Print("{}: {} experts in groups of {}, {}\n", flags.out, map.experts(), fmt::join(map.Sizes(), "/"),
        map.ContentDigest());
  return {};
}

Status Show(const ShowFlags& flags) {
  TRY_ASSIGN(const Placement map, plan::ReadPlacement(flags.file));
  if (flags.json) {
    std::puts(DumpJson(map.PlanFragment(), 2).c_str());
    return {};
  }
  Print("version {}, {}, {} ids, {} experts in {} groups\ncontent {}, provenance {}\n\n", Quote(map.version),
        plan::StrategyName(map.strategy), plan::SemanticsName(map.semantics), map.experts(), map.ep_size(),
        map.ContentDigest(), map.ProvenanceDigest());
  Print("{:>5}  {:>7}  {:>8}  experts by slot\n", "group", "experts", "first id");
  int64_t id = 0;
  for (size_t group = 0; group < map.tables.size(); ++group) {
    const std::vector<int64_t>& table = map.tables[group];
    Print("{:>5}  {:>7}  {:>8}  {}\n", group, table.size(), id, fmt::join(table, " "));
    id += static_cast<int64_t>(table.size());
  }
  return {};
}

// Experts whose address differs.
Status Diff(const ShowFlags& flags) {
  TRY_ASSIGN(const Placement from, plan::ReadPlacement(flags.file));
  TRY_ASSIGN(const Placement to, plan::ReadPlacement(flags.other));
  if (from.experts() != to.experts()) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected {} experts as in {}, found {}; compare maps of one model", flags.other,
                                 from.experts(), flags.file, to.experts()));
  }
  const std::vector<ExpertAddress> before = from.Addresses(), after = to.Addresses();
  Json moved = Json::array();
  int64_t between = 0;
  for (size_t e = 0; e < before.size(); ++e) {
    if (before[e] == after[e]) continue;
    if (before[e].ep_rank != after[e].ep_rank) ++between;
    moved.push_back({{"expert", e},
                     {"from", {before[e].ep_rank, before[e].local_slot}},
                     {"to", {after[e].ep_rank, after[e].local_slot}}});
  }
  if (flags.json) {
    const Json out = {{"experts", from.experts()},
                      {"groups", {from.ep_size(), to.ep_size()}},
                      {"content", {from.ContentDigest(), to.ContentDigest()}},
                      {"between_groups", between},
                      {"moved", std::move(moved)}};
    std::puts(DumpJson(out, 2).c_str());
    return {};
  }
  for (const Json& one : moved) {
    Print("expert {:>4}: group {} slot {} -> group {} slot {}\n", DumpJson(one["expert"]), DumpJson(one["from"][0]),
          DumpJson(one["from"][1]), DumpJson(one["to"][0]), DumpJson(one["to"][1]));
  }
  Print("{} of {} experts moved, {} of them to another group; groups of {} -> {}\n", moved.size(), from.experts(),
        between, fmt::join(from.Sizes(), "/"), fmt::join(to.Sizes(), "/"));
  return {};
}

// The gates in order; the first that fails is the error, and its code is named in it.
Status Check(const CheckFlags& flags) {
  TRY_ASSIGN(const Json fragment, ReadJsonFile(flags.file));
  TRY_ASSIGN(const plan::PlacementRecord record, plan::ParsePlacementRecord(fragment, flags.file));
  plan::Verdict verdict;
  if (!flags.expected.empty()) verdict = plan::CheckPlacementVersion(record, flags.expected);
  if (verdict.passed()) verdict = plan::CheckPlacementStructure(record);
  if (verdict.passed()) {
    TRY_ASSIGN(const Placement map, plan::MakePlacement(record, flags.file));
    int64_t experts = map.experts();
    if (!flags.model.empty()) {
      TRY_ASSIGN(experts, ExpertsOf(flags.model));
    }
    verdict = plan::CheckPlacementFits(map, experts, flags.ranks == 0 ? map.ep_size() : flags.ranks);
  }
  if (!verdict.passed()) {
    return MakeError(verdict.code == plan::kPlacementVersionMismatch ? Code::kDiffers : Code::kInvalid,
                     fmt::format("{}: {} ({}): {}", flags.file, plan::PlacementVerdictName(verdict.code), verdict.code,
                                 verdict.sentence));
  }
  if (flags.json) {
    std::puts(DumpJson({{"verdict", verdict.code},
                        {"name", plan::PlacementVerdictName(verdict.code)},
                        {"version", record.version},
                        {"experts", record.experts},
                        {"ep_size", record.ep_size}})
                  .c_str());
  } else {
    Print("{}: PASS, version {}, {} experts in {} groups\n", flags.file, Quote(record.version), record.experts,
          record.ep_size);
  }
  return {};
}

Run AddMake(CLI::App* app) {
  auto flags = std::make_shared<MakeFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option("MODEL", flags->model, "model whose experts are placed; its config.json is enough");
  app->add_option("--experts", flags->experts, "number of experts, instead of MODEL");
  app->add_option("--ep,--ep-size", flags->ep, "expert groups; 0: one, or as many as --pairs names");
  app->add_option(
      "--strategy", flags->strategy,
      "block, which is the default: consecutive experts in a group; interleave: expert e in group e modulo their "
      "number");
  app->add_option("--pairs", flags->pairs, "JSON file: a list of [group, slot], by expert");
  app->add_option("--logical-to-physical", flags->flat,
                  "JSON file: a list of global ids, by expert; groups have sizes as for block");
  app->add_flag("--random", flags->random, "every expert in a group and slot at random; a group may have none");
  app->add_option("--seed", flags->seed, "of --random");
  app->add_option("--semantics", flags->semantics,
                  "what ids in the file are: global, or rank_local (slots of a group)");
  app->add_option("--label", flags->version, "version by which runs name the map; the strategy's when empty");
  app->add_option("--out,-o", flags->out, "file to write; standard output when empty");
  return [flags] { return Make(*flags); };
}

Run AddShow(CLI::App* app) {
  auto flags = std::make_shared<ShowFlags>();  // shared_ptr: likewise
  app->add_option("FILE", flags->file, "a map")->required();
  app->add_flag("--json", flags->json, "the map as JSON");
  return [flags] { return Show(*flags); };
}

Run AddDiff(CLI::App* app) {
  auto flags = std::make_shared<ShowFlags>();  // shared_ptr: likewise
  app->add_option("FROM", flags->file, "a map")->required();
  app->add_option("TO", flags->other, "a map of as many experts")->required();
  app->add_flag("--json", flags->json, "the moves as JSON");
  return [flags] { return Diff(*flags); };
}

Run AddCheck(CLI::App* app) {
  auto flags = std::make_shared<CheckFlags>();  // shared_ptr: likewise
  app->add_option("FILE", flags->file, "a map")->required();
  app->add_option("MODEL", flags->model, "model whose experts it must place");
  app->add_option("--ranks,-n", flags->ranks, "ranks that must be enough for its groups; 0: any");
  app->add_option("--expect", flags->expected, "version that it must have; any when empty");
  app->add_flag("--json", flags->json, "the verdict as JSON");
  return [flags] { return Check(*flags); };
}

}  // namespace

Run AddPlacement(CLI::App* app) {
  app->require_subcommand(1);
  app->set_help_flag();
  app->set_help_all_flag("-h,--help", "Print this help message and exit");  // with the flags of what is below
  std::vector<std::pair<CLI::App*, Run>> runs;
  const struct {
    const char* name;
    const char* summary;
    Run (*add)(CLI::App* app);
  } commands[] = {{"make", "write a map, by rule or from a list", AddMake},
                  {"show", "a map as a table", AddShow},
                  {"diff", "which experts moved between two maps", AddDiff},
                  {"check", "whether a file is a map, and fits a model and its ranks", AddCheck}};
  for (const auto& command : commands) {
    CLI::App* sub = app->add_subcommand(command.name, command.summary);
    runs.emplace_back(sub, command.add(sub));
  }
  return [runs]() -> Exit {
    for (const auto& [sub, run] : runs) {
      if (sub->parsed()) return run();
    }
    return Status();
  };
}

}  // namespace trivet::cli
