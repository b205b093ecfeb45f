// SPDX-License-Identifier: Apache-2.0
#include "cli/rewrite.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/options.h"
#include "cli/progress.h"

namespace trivet::cli {

void RewriteFlags::Add(CLI::App* app) {
  app->add_option("MODEL", model, "directory with config.json and safetensors files, or \"demo\"")->required();
  app->add_option("OUT", out, "folder to write, which is empty or does not exist yet")->required();
  AddSize(app, "--shard-size", &shard_bytes, "most bytes of one safetensors file, such as 5GB");
  app->add_flag("--json", json, "the summary as JSON");
  app->add_flag("--quiet,-q", quiet, "no notices and no progress");
}

Result<engine::OpenedModel> RewriteFlags::Open() const {
  if (shard_bytes < 1) return MakeError(Code::kUsage, "--shard-size: expected at least 1 byte, found less; give more");
  TRY_ASSIGN(const std::string dir, ModelDir(model));
  return engine::OpenModel(model, dir);
}

void RewriteFlags::Say(const std::vector<std::string>& notices) const {
  for (const std::string& notice : notices) {
    if (!quiet) std::fprintf(stderr, "notice: %s\n", notice.c_str());
  }
}

exporter::Source SourceOf(const engine::OpenedModel& model) {
  return {model.files, model.checkpoint, model.geometry, model.names};
}

Status Write(const RewriteFlags& flags, const exporter::OutputModel& model, Json* summary) {
  ProgressBar bar(fmt::format("writing {}", flags.out), !flags.quiet);
  exporter::OutputOptions options;
  options.shard_bytes = flags.shard_bytes;
  options.show = [&bar](int64_t done, int64_t total) { bar.Show(done, total); };
  TRY_ASSIGN(const exporter::OutputFiles files, exporter::WriteModel(model, flags.out, options));
  bar.Finish();
  (*summary)["out"] = flags.out;
  (*summary)["bytes"] = files.tensor_bytes;
  (*summary)["files"] = {{"weights", files.weights}, {"copied", files.copied}};
  return {};
}

}  // namespace trivet::cli
