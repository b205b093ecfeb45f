// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/commands.h"
#include "proof/layout_facts.h"
#include "proof/run.h"
#include "record/records.h"

namespace trivet::cli {
namespace {

struct OwnersFlags {
  std::string run;
  int64_t layer = 0, request = 0, position = 0;
  int64_t rank = 0;
};

// The layout that a sealed run declares.
Result<proof::TokenLayout> LayoutOf(const std::string& dir) {
  TRY_ASSIGN(const proof::Files files, proof::ReadRunDir(dir));
  proof::RecordedRun run;
  proof::Gate gate = proof::CheckSeal(files);
  if (!gate) gate = proof::ParseRun(files, &run);
  if (!gate) return run.tokens;
  return MakeError(Code::kInvalid, fmt::format("{}: expected a sealed run, found {}: {}; record it anew", dir,
                                               proof::VerdictName(gate->verdict), gate->message));
}

Error OutOfRange(const char* what, int64_t most, int64_t found) {
  return MakeError(Code::kUsage,
                   fmt::format("{}: expected 0 to {}, found {}; choose one of the run's", what, most, found));
}

Status Owners(const OwnersFlags& flags) {
  TRY_ASSIGN(const proof::TokenLayout layout, LayoutOf(flags.run));
  if (flags.layer < 0 || flags.layer >= layout.layers()) return OutOfRange("--layer", layout.layers() - 1, flags.layer);
  const auto facts = std::find_if(layout.requests.begin(), layout.requests.end(),
                                  [&](const proof::RequestFacts& one) { return one.request == flags.request; });
  if (facts == layout.requests.end()) {
    return OutOfRange("--request", static_cast<int64_t>(layout.requests.size()) - 1, flags.request);
  }
  if (flags.position < 0 || flags.position >= facts->computed) {
    return OutOfRange("--position", facts->computed - 1, flags.position);
  }
  const int64_t token = record::GlobalToken(flags.request, flags.position);
  std::puts(DumpJson(proof::OwnersJson(layout, {flags.layer, token}), 1).c_str());
  return {};
}

Status Holdings(const OwnersFlags& flags) {
  TRY_ASSIGN(const proof::TokenLayout layout, LayoutOf(flags.run));
  if (flags.rank < 0 || flags.rank >= layout.world) return OutOfRange("RANK", layout.world - 1, flags.rank);
  std::puts(DumpJson(proof::HoldingsJson(layout, flags.rank), 1).c_str());
  return {};
}

}  // namespace

Run AddLayout(CLI::App* app) {
  auto flags = std::make_shared<OwnersFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  CLI::App* owners = app->add_subcommand("owners", "the ranks that must have recorded a token of a layer");
  owners->add_option("RUN", flags->run, "folder of a recorded run")->required();
  owners->add_option("--layer", flags->layer, "the layer");
  owners->add_option("--request", flags->request, "the request");
  owners->add_option("--position", flags->position, "the token's position in the request");
  CLI::App* rank = app->add_subcommand("rank", "the layers and tokens that a rank must have recorded");
  rank->add_option("RUN", flags->run, "folder of a recorded run")->required();
  rank->add_option("RANK", flags->rank, "the rank")->required();
  app->set_help_flag();
  app->set_help_all_flag("-h,--help", "Print this help message and exit");  // with the flags of what is below
  app->require_subcommand(1);
  return [flags, owners] { return owners->parsed() ? Owners(*flags) : Holdings(*flags); };
}

}  // namespace trivet::cli
