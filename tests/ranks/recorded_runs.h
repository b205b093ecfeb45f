// SPDX-License-Identifier: Apache-2.0
// Runs of the engine that are recorded for the verifier, with and without planted faults.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "proof/rank_files.h"
#include "proof/verify.h"
#include "tests/io/temp_dir.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {

/// How a run is made.
struct RunSetting {
  std::string fault;
  kernels::Numerics numerics = kernels::Numerics::kExact;
  int64_t ranks = 3;
  engine::Launch launch = engine::Launch::kThreads;
  int64_t tokens = 20;
  std::string experts = {};  // cut
  int64_t stages = 1, replicas = 1, requests = 1;
  int64_t ep = 0, prefill_chunk = 0;  // 0: as the engine chooses
  std::string model = {};             // of the golden cases; empty: the demo
  int64_t context = 1;                // in stretches of 9, zigzag
  bool dealt = false;                 // rows to the ranks that cut a layer
};

/// Records runs of the demo, or of a golden case.
class RecordedRuns : public testing::Test {
 protected:
  /// Records and seals a run.
  proof::NamedFiles Record(const RunSetting& setting, record::Level level = record::Level::kRows) {
    engine::EngineOptions options;
    options.layout.ranks = setting.ranks;
    options.layout.stages = setting.stages;
    options.layout.replicas = setting.replicas;
    options.layout.context = setting.context;
    options.layout.context_split = plan::SequenceSplit::kZigzag;
    options.layout.context_stretch = 9;
    options.layout.sequence_parallel = setting.dealt;
    if (!setting.experts.empty()) options.layout.cuts["experts"] = setting.experts;
    options.layout.ep = setting.ep;
    if (setting.prefill_chunk > 0) options.prefill_chunk = setting.prefill_chunk;
    options.launch = setting.launch;
    options.numerics = setting.numerics;
    options.proof.level = level;
    options.proof.dir = dir_.Path("run" + std::to_string(runs_++));
    options.proof.command = "test";
    if (!setting.fault.empty()) {
      const Result<comm::Fault> parsed = comm::ParseFault(setting.fault);
      CHECK_MSG(parsed.ok(), parsed.error().message);
      options.fault = *parsed;
    }
    std::optional<engine::OpenedModel> other;
    if (!setting.model.empty()) other.emplace(support::Open(CaseDir(setting.model)));
    const engine::OpenedModel& model = other ? *other : model_;
    auto engine = engine::Engine::Start(model, options, {});
    CHECK_MSG(engine.ok(), engine.error().message);
    std::vector<std::vector<TokenId>> set;
    for (int64_t i = 0; i < setting.requests; ++i) {
      set.push_back(support::RandomTokens(setting.tokens + i, model.geometry.vocab, static_cast<uint64_t>(5 + i)));
    }
    const auto scored = engine::Score(engine->get(), {set, true, false});
    CHECK_MSG(scored.ok(), scored.error().message);
    const Status sealed = (*engine)->SealProof();
    CHECK_MSG(sealed.ok(), sealed.error().message);
    return {options.proof.dir, proof::ReadRunDir(options.proof.dir).value()};
  }

  const engine::OpenedModel model_ = support::Open(DemoDir());
  const TempDir dir_;
  int runs_ = 0;
};

}  // namespace trivet
