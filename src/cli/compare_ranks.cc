// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_ranks.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>

#include "engine/scoring.h"

namespace trivet::cli {
namespace {

Result<std::vector<float>> Logits(const engine::OpenedModel& model, const engine::EngineOptions& options,
                                  const std::vector<TokenId>& tokens) {
  TRY_ASSIGN(const std::unique_ptr<engine::Engine> engine, engine::Engine::Start(model, options, {}));
  TRY_ASSIGN(std::vector<engine::ScoredSequence> scored, engine::Score(engine.get(), {{tokens}, false, false}));
  return std::move(scored[0].logits);
}

}  // namespace

Status CompareRanks(const engine::OpenedModel& model, const engine::EngineOptions& options, int64_t ranks,
                    const std::vector<TokenId>& tokens) {
  engine::EngineOptions other = options;
  other.layout = {};
  other.fault = {};  // which only what is judged has
  other.layout.ranks = ranks;
  TRY_ASSIGN(const plan::Layout layout, plan::MakeLayout(model.geometry, options.layout));
  TRY_ASSIGN(const std::vector<float> a, Logits(model, options, tokens));
  TRY_ASSIGN(const std::vector<float> b, Logits(model, other, tokens));
  CHECK(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) continue;
    return MakeError(
        Code::kDiffers,
        fmt::format("logits: expected the bytes of {} ranks, found {} instead of {} at position {}, id {}; run "
                    "score --proof digest under both and verify them",
                    ranks, a[i], b[i], i / static_cast<size_t>(model.geometry.vocab),
                    i % static_cast<size_t>(model.geometry.vocab)));
  }
  std::fprintf(stderr, "%zu logits of %zu tokens on %ld ranks compared with those of %ld, byte for byte: equal\n",
               a.size(), tokens.size(), layout.world(), ranks);
  return {};
}

}  // namespace trivet::cli
