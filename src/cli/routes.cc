// SPDX-License-Identifier: Apache-2.0
#include "engine/routes.h"

#include <cstdio>

#include "base/str.h"
#include "cli/commands.h"

namespace trivet::cli {
namespace {

Status Export(const std::string& run, const std::string& out) {
  TRY_ASSIGN(const proof::Files files, proof::ReadRunDir(run));
  TRY_ASSIGN(const std::string path, WritablePath(out));
  return engine::ExportRoutes(files, run, path);
}

}  // namespace

Run AddRoutes(CLI::App* app) {
  auto run = std::make_shared<std::string>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  auto out = std::make_shared<std::string>();  // shared_ptr: likewise
  CLI::App* sub = app->add_subcommand("export", "experts and weights of every token of a recorded run, as safetensors");
  sub->add_option("RUN", *run, "folder of a run that was recorded with --proof rows or full")->required();
  sub->add_option("OUT", *out, "safetensors file: tokens.R [T], experts.R and weights.R [T, layers, K] of request R")
      ->required();
  app->set_help_flag();
  app->set_help_all_flag("-h,--help", "Print this help message and exit");  // with the flags of what is below
  app->require_subcommand(1);
  return [run, out] { return Export(*run, *out); };
}

}  // namespace trivet::cli
