// SPDX-License-Identifier: Apache-2.0
#include "engine/routes.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/signals.h"

namespace trivet::cli {
namespace {

struct RoutesFlags {
  std::string run, out;
  bool quiet = false;
};

Status Export(const RoutesFlags& flags) {
  TRY_ASSIGN(const proof::Files files, proof::ReadRunDir(flags.run));
  TRY_ASSIGN(const std::string path, WritablePath(flags.out));
  std::error_code ignored;
  if (std::filesystem::equivalent(std::filesystem::absolute(path).parent_path(), flags.run, ignored)) {
    return MakeError(
        Code::kUsage,
        fmt::format("{}: expected a path outside of the run, which is sealed, found one in it; choose another",
                    flags.out));
  }
  const FileWatch watch(path);
  TRY_ASSIGN(const engine::ExportedRoutes exported, engine::ExportRoutes(files, flags.run, path));
  if (flags.quiet) return {};
  std::fprintf(stderr, "exported the experts of %zu tokens of %zu requests in %zu layers\n", exported.tokens,
               exported.requests, exported.layers);
  return {};
}

}  // namespace

Run AddRoutes(CLI::App* app) {
  auto flags = std::make_shared<RoutesFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  CLI::App* sub = app->add_subcommand("export", "experts and weights of every token of a recorded run, as safetensors");
  sub->add_option("RUN", flags->run, "folder of a run that was recorded with --proof rows or full")->required();
  sub->add_option("OUT", flags->out,
                  "safetensors file: tokens.R [T], experts.R and weights.R [T, layers, K] of request R")
      ->required();
  sub->add_flag("--quiet,-q", flags->quiet, "no notices");
  app->set_help_flag();
  app->set_help_all_flag("-h,--help", "Print this help message and exit");  // with the flags of what is below
  app->require_subcommand(1);
  return [flags] { return Export(*flags); };
}

}  // namespace trivet::cli
