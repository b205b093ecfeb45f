// SPDX-License-Identifier: Apache-2.0
#include "export/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/rewrite.h"
#include "cli/signals.h"

namespace trivet::cli {
namespace {

struct QuantizeFlags {
  RewriteFlags rewrite;
  std::string format;
  bool head = false;
};

Status Execute(const QuantizeFlags& flags) {
  exporter::QuantizeOptions options;
  TRY_ASSIGN(options.format, exporter::ParseQuantFormat(flags.format));
  options.head = flags.head;
  const FolderWatch watch(flags.rewrite.out);
  TRY_ASSIGN(const engine::OpenedModel model, flags.rewrite.Open());
  flags.rewrite.Say(model.notices);
  ThreadPool pool(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 64U)));
  options.pool = &pool;
  TRY_ASSIGN(const exporter::QuantizePlan plan, exporter::PlanQuantize(SourceOf(model), options));
  Json summary = {{"format", flags.format},
                  {"matrices_quantised", plan.quantised},
                  {"tensors_kept", plan.kept},
                  {"source_bytes", plan.source_bytes}};
  TRY(Write(flags.rewrite, plan.model, &summary));
  if (flags.rewrite.json) {
    std::puts(DumpJson(summary, 2).c_str());
    return {};
  }
  std::printf("%s: %lld matrices in %s, %lld tensors as they were; %s of tensors became %s\n",
              flags.rewrite.out.c_str(), static_cast<long long>(plan.quantised), flags.format.c_str(),
              static_cast<long long>(plan.kept), HumanBytes(static_cast<double>(plan.source_bytes)).c_str(),
              HumanBytes(summary["bytes"].get<double>()).c_str());
  return {};
}

}  // namespace

Run AddQuantize(CLI::App* app) {
  auto flags = std::make_shared<QuantizeFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->rewrite.Add(app);
  app->add_option("--format", flags->format, "fp8 (128x128 blocks) or mxfp4 (32 columns)")->required();
  app->add_flag("--head", flags->head, "quantise the head, too, where it has weights of its own");
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
