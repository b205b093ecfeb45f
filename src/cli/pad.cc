// SPDX-License-Identifier: Apache-2.0
#include "export/pad.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/rewrite.h"
#include "cli/signals.h"

namespace trivet::cli {
namespace {

struct PadFlags {
  RewriteFlags rewrite;
  int64_t ranks = 1;
  std::string vocab = "keep";
};

Json AxesJson(const exporter::PadPlan& plan, int64_t ranks) {
  Json axes = Json::array();
  for (const exporter::PaddedAxis& axis : plan.axes) {
    Json row = {{"axis", axis.axis}, {"counts", axis.what}, {"stock", axis.stock}, {"padded", axis.padded}};
    if (axis.padded % ranks == 0) row["per_rank"] = axis.padded / ranks;
    axes.push_back(std::move(row));
  }
  return axes;
}

void PrintSummary(const PadFlags& flags, const exporter::PadPlan& plan, const Json& summary) {
  std::printf("%-8s %-12s %10s %10s %10s\n", "axis", "counts", "stock", "padded", "per rank");
  for (const Json& row : summary["axes"]) {
    const Json* share = Find(row, "per_rank");
    std::printf("%-8s %-12s %10lld %10lld %10s\n", row["axis"].get<std::string>().c_str(),
                row["counts"].get<std::string>().c_str(), static_cast<long long>(row["stock"].get<int64_t>()),
                static_cast<long long>(row["padded"].get<int64_t>()),
                share == nullptr ? "uneven" : DumpJson(*share).c_str());
  }
  std::printf("\n%s: %lld of %lld tensors padded; %lld elements written once each, %lld zeros added (%.1f%%); %s\n",
              flags.rewrite.out.c_str(), static_cast<long long>(plan.padded_tensors),
              static_cast<long long>(plan.tensors), static_cast<long long>(plan.elements),
              static_cast<long long>(plan.pads),
              100 * static_cast<double>(plan.pads) / static_cast<double>(plan.elements),
              HumanBytes(summary["bytes"].get<double>()).c_str());
}

// What was found when the model was opened, but for tensors that it does not need: the plan says what becomes of them.
std::vector<std::string> NoticesOf(const engine::OpenedModel& model) {
  const engine::ExtraTensors extra =
      engine::FindExtraTensors(model.geometry, model.names, model.checkpoint, model.quant);
  std::vector<std::string> notices = model.notices;
  std::erase_if(notices, [&](const std::string& notice) {
    return std::find(extra.skipped.begin(), extra.skipped.end(), notice) != extra.skipped.end();
  });
  return notices;
}

Status Execute(const PadFlags& flags) {
  if (flags.vocab != "keep" && flags.vocab != "pad") {
    return MakeError(Code::kUsage,
                     fmt::format("--vocab: expected keep or pad, found \"{}\"; choose one", Quote(flags.vocab)));
  }
  const FolderWatch watch(flags.rewrite.out);
  TRY_ASSIGN(const engine::OpenedModel model, flags.rewrite.Open());
  TRY_ASSIGN(const exporter::PadPlan plan, exporter::PlanPad(SourceOf(model), {flags.ranks, flags.vocab == "pad"}));
  flags.rewrite.Say(NoticesOf(model));
  flags.rewrite.Say(plan.notices);
  Json summary = {{"ranks", flags.ranks},      {"axes", AxesJson(plan, flags.ranks)},
                  {"tensors", plan.tensors},   {"tensors_padded", plan.padded_tensors},
                  {"elements", plan.elements}, {"pads", plan.pads},
                  {"notices", plan.notices}};
  TRY(Write(flags.rewrite, plan.model, &summary));
  if (flags.rewrite.json) {
    std::puts(DumpJson(summary, 2).c_str());
  } else {
    PrintSummary(flags, plan, summary);
  }
  return {};
}

}  // namespace

Run AddPad(CLI::App* app) {
  auto flags = std::make_shared<PadFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->rewrite.Add(app);
  app->add_option("--ranks,-n,--tensor-parallel-size,--tp", flags->ranks,
                  "ranks that the axes shall divide by, 1 to 16")
      ->required();
  app->add_option("--vocab", flags->vocab, "keep: as it is; pad: zero rows, for engines that mask them");
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
