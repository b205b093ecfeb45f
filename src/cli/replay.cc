// SPDX-License-Identifier: Apache-2.0
#include "engine/replay.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/options.h"

namespace trivet::cli {
namespace {

struct ReplayFlags {
  EngineFlags engine;
  ProofFlags proof;
  std::string from;
};

Status Execute(ReplayFlags flags) {
  TRY_ASSIGN(const proof::Files files, proof::ReadRunDir(flags.from));
  TRY_ASSIGN(const engine::RecordedWork work, engine::ReadWork(files, flags.from));
  if (flags.engine.layout.model.empty()) flags.engine.layout.model = work.model;
  if (flags.proof.level.empty()) flags.proof.level = record::LevelName(work.level);
  std::string& kv_dtype = flags.engine.sizes.kv_cache_dtype;
  if (!kv_dtype.empty() && !work.kv_dtype.empty() && kv_dtype != work.kv_dtype) {
    return MakeError(Code::kUsage,
                     fmt::format("--kv-cache-dtype: expected {}, as {} has it, found \"{}\"; leave it out",
                                 work.kv_dtype, flags.from, Quote(kv_dtype)));
  }
  if (kv_dtype.empty()) kv_dtype = work.kv_dtype.empty() ? cache::KvDtypeName(cache::KvDtype::kF32) : work.kv_dtype;
  if (work.forced && flags.engine.routes.empty()) {
    return MakeError(Code::kUsage, fmt::format("--routes: expected the file that {} took its experts from, found none; "
                                               "give it",
                                               flags.from));
  }
  TRY_ASSIGN(engine::EngineOptions options, flags.engine.Options());
  TRY(flags.proof.Fill("replay", &options));
  options.proof.logits_from = work.logits_from;
  TRY_ASSIGN(const Loaded loaded, Load(flags.engine, options));
  TRY(engine::Replay(loaded.engine.get(), work));
  TRY(loaded.engine->SealProof());
  if (flags.engine.quiet) return {};
  size_t tokens = 0;
  for (const auto& one : work.tokens) tokens += one.size();
  std::fprintf(stderr, "replayed %zu tokens of %zu requests; compare with: trivet verify %s %s\n", tokens,
               work.requests.size(), flags.from.c_str(), flags.proof.dir.c_str());
  return {};
}

}  // namespace

Run AddReplay(CLI::App* app) {
  auto flags = std::make_shared<ReplayFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->engine.Add(app);
  flags->engine.AddRoutes(app);
  flags->engine.sizes.kv_cache_dtype.clear();
  app->get_option("--kv-cache-dtype")->default_str("")->description("as the run has it, and nothing else");
  app->get_option("MODEL")->required(false)->description("the run's own model when absent");
  app->add_option("--from", flags->from, "folder of the run whose tokens are computed once more")->required();
  flags->proof.level.clear();
  flags->proof.Add(app, ",--out");
  app->get_option("--proof")->description(
      "what the run records of itself: digest, rows or full; as --from when absent");
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
