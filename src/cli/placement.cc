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
#include "cli/signals.h"
#include "engine/request_options.h"
#include "plan/placement_record.h"

namespace trivet::cli {
namespace {

using plan::ExpertAddress;
using plan::Placement;

struct MakeFlags {
  std::string model, strategy, pairs, flat, out, version;
  std::string semantics = "global";
  std::string seed = "0";
  int64_t experts = 0, ep = 0;
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

// A file that lists something for every logical expert.
//   form     what an entry is, for messages
//   is_entry whether a value has that form
Result<Json> ReadList(const std::string& path, const char* form, bool (*is_entry)(const Json&)) {
  TRY_ASSIGN(Json list, ReadJsonFile(path));
  const auto refuse = [&](const std::string& found) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected a list of {} by expert, found {}; correct it", path, form, found));
  };
  if (!list.is_array()) return refuse(Quote(DumpJson(list), 80));
  if (list.empty() || static_cast<int64_t>(list.size()) > plan::kMostExperts) {
    return refuse(fmt::format("{} entries, of which there may be 1 to {}", list.size(), plan::kMostExperts));
  }
  for (size_t e = 0; e < list.size(); ++e) {
    if (!is_entry(list[e])) return refuse(fmt::format("{} for expert {}", Quote(DumpJson(list[e]), 80), e));
  }
  return list;
}

Result<std::vector<ExpertAddress>> ReadPairs(const std::string& path) {
  const auto is_pair = [](const Json& pair) {
    return pair.is_array() && pair.size() == 2 && IsInt64(pair[0]) && IsInt64(pair[1]);
  };
  TRY_ASSIGN(const Json list, ReadList(path, "[group, slot]", is_pair));
  std::vector<ExpertAddress> pairs;
  for (const Json& pair : list) pairs.push_back({pair[0].get<int64_t>(), pair[1].get<int64_t>()});
  return pairs;
}

Result<std::vector<int64_t>> ReadFlatList(const std::string& path) {
  TRY_ASSIGN(const Json list, ReadList(path, "global ids", IsInt64));
  return list.get<std::vector<int64_t>>();
}

// An error of a map made from a file's list names the file.
Result<Placement> Named(const std::string& path, Result<Placement> made) {
  if (made.ok() || made.error().code != Code::kInvalid) return made;
  return MakeError(Code::kInvalid, fmt::format("{}: {}", path, made.error().message));
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
  const Result<plan::PlacementSemantics> semantics = plan::ParseSemantics(flags.semantics);
  if (!semantics.ok()) return MakeError(Code::kUsage, "--" + semantics.error().message);
  label.semantics = *semantics;
  if (!flags.pairs.empty()) {
    TRY_ASSIGN(const std::vector<ExpertAddress> pairs, ReadPairs(flags.pairs));
    return Named(flags.pairs, Placement::FromPairs(pairs, flags.ep, label));
  }
  const int64_t ep = flags.ep == 0 ? 1 : flags.ep;
  if (!flags.flat.empty()) {
    TRY_ASSIGN(const std::vector<int64_t> ids, ReadFlatList(flags.flat));
    TRY_ASSIGN(const Placement block,
               Placement::FromEpConfig(static_cast<int64_t>(ids.size()), ep, plan::PlacementStrategy::kBlock));
    return Named(flags.flat, Placement::FromLogicalToPhysical(ids, block.Sizes(), label));
  }
  TRY_ASSIGN(const int64_t experts, CountExperts(flags));
  if (flags.random) {
    TRY_ASSIGN(const uint64_t seed, engine::ParseSeed(flags.seed, "--seed"));
    return Placement::Random(experts, ep, seed, label);
  }
  const std::string name = flags.strategy.empty() ? "block" : flags.strategy;
  for (const auto strategy : {plan::PlacementStrategy::kBlock, plan::PlacementStrategy::kInterleave}) {
    if (name == plan::StrategyName(strategy)) return Placement::FromEpConfig(experts, ep, strategy, label);
  }
  return MakeError(Code::kUsage,
                   fmt::format("--strategy: expected block or interleave, found \"{}\"; choose one", Quote(name)));
}

Status Make(const MakeFlags& flags) {
  TRY_ASSIGN(const Placement map, MakeMap(flags));
  if (!flags.model.empty() || flags.experts != 0) {
    TRY_ASSIGN(const int64_t experts, CountExperts(flags));
    if (map.experts() != experts) {  // so the map is from a list
      return MakeError(Code::kInvalid, fmt::format("{}: expected {} entries, one for every expert of {}, found {}; "
                                                   "correct it",
                                                   flags.pairs.empty() ? flags.flat : flags.pairs, experts,
                                                   flags.model.empty() ? "--experts" : flags.model, map.experts()));
    }
  }
  const std::string text = DumpJson(map.PlanFragment(), 2) + "\n";
  if (flags.out.empty()) {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  TRY_ASSIGN(const std::string path, WritablePath(flags.out));
  const FileWatch watch(path);
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

// The gates in order, and whether the map fits.
//   record  what the file claims; whole when the verdict passes
// Errors:  failures that are no verdict.
Result<plan::Verdict> Judge(const CheckFlags& flags, plan::PlacementRecord* record) {
  if (flags.ranks < 0 || flags.ranks > plan::kMaxRanks) {
    return MakeError(Code::kUsage,
                     fmt::format("--ranks: expected 1 to {}, or 0 for any, found {}; choose another count",
                                 plan::kMaxRanks, flags.ranks));
  }
  TRY_ASSIGN(const Json fragment, ReadJsonFile(flags.file));
  const auto expected = flags.expected.empty() ? std::nullopt : std::optional(flags.expected);
  const Result<plan::Verdict> verdict = plan::CheckPlacementFile(fragment, expected, record);
  if (!verdict.ok()) {
    return MakeError(verdict.error().code, fmt::format("{}: {}", flags.file, verdict.error().message));
  }
  if (!verdict->passed()) return verdict;
  TRY_ASSIGN(const Placement map, plan::MakePlacement(*record, flags.file));
  int64_t experts = map.experts();
  if (!flags.model.empty()) {
    TRY_ASSIGN(experts, ExpertsOf(flags.model));
  }
  return plan::CheckPlacementFits(map, experts, flags.ranks == 0 ? map.ep_size() : flags.ranks);
}

// A verdict other than PASS is printed if asked for, and is the error.
Status Check(const CheckFlags& flags) {
  plan::PlacementRecord record;
  TRY_ASSIGN(const plan::Verdict verdict, Judge(flags, &record));
  const char* const name = plan::PlacementVerdictName(verdict.code);
  if (flags.json) {
    Json out = {{"verdict", verdict.code}, {"name", name}};
    if (verdict.passed()) {
      out.update({{"version", record.version}, {"experts", record.experts}, {"ep_size", record.ep_size}});
    } else {
      out["sentence"] = verdict.sentence;
    }
    std::puts(DumpJson(out).c_str());
  }
  if (!verdict.passed()) {
    return MakeError(verdict.code == plan::kPlacementVersionMismatch ? Code::kDiffers : Code::kInvalid,
                     fmt::format("{}: {} ({}): {}", flags.file, name, verdict.code, verdict.sentence));
  }
  if (!flags.json) {
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
  CLI::Option* random =
      app->add_flag("--random", flags->random, "every expert in a group and slot at random; a group may have none");
  app->add_option("--seed", flags->seed, "of --random: an integer from -2^63 to 2^64 - 1")
      ->type_name("SEED")
      ->needs(random);
  app->add_option("--semantics", flags->semantics,
                  "what ids in the file are: global, or rank_local (slots of a group)");
  app->add_option(
      "--label", flags->version,
      "version by which runs name the map; without it, one made from the strategy, the groups and the content");
  app->add_option("--out,-o", flags->out, "file to write; without it, standard output");
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
  app->add_option("--expect", flags->expected, "version that it must have; without it, any");
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
    for (CLI::Option* option : sub->get_options()) {
      if (option->get_type_name() == "TEXT") RefuseEmpty(option);
    }
  }
  return [runs]() -> Exit {
    for (const auto& [sub, run] : runs) {
      if (sub->parsed()) return run();
    }
    return Status();
  };
}

}  // namespace trivet::cli
