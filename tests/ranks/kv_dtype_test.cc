// SPDX-License-Identifier: Apache-2.0
// A KV cache in FP8 gives other bytes than one in float32, and the same ones for every layout, chunk and row: a KV head
// is whole on its rank, and a row of it is coded alone.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

engine::EngineOptions Fp8(int64_t ranks, int64_t chunk = 512) {
  engine::EngineOptions options;
  options.layout.ranks = ranks;
  options.prefill_chunk = chunk;
  options.kv_dtype = cache::KvDtype::kE4M3;
  return options;
}

// Every model's logits in FP8, by one rank; compared with what `options` give.
class Model {
 public:
  explicit Model(const std::string& dir) : model_(support::Open(dir)) {
    set_ = {support::RandomTokens(150, model_.geometry.vocab, 1), support::RandomTokens(40, model_.geometry.vocab, 2)};
    expected_ = Run(Fp8(1));
  }
  std::vector<float> Run(const engine::EngineOptions& options) const {
    Result<std::vector<float>> logits = support::Logits(model_, options, set_);
    CHECK_MSG(logits.ok(), logits.error().message);
    return std::move(logits).value();
  }
  std::string Difference(const engine::EngineOptions& options) const {
    return support::FirstDifference(expected_, Run(options), model_.geometry.vocab);
  }

 private:
  engine::OpenedModel model_;
  support::TokenSet set_;
  std::vector<float> expected_;
};

TEST(KvDtype, Fp8HasTheSameBytesForEveryLayout) {
  const Model demo(DemoDir());
  EXPECT_NE(demo.Difference({}), "") << "float32";
  for (const int64_t ranks : {3, 5}) EXPECT_EQ(demo.Difference(Fp8(ranks, ranks == 3 ? 7 : 64)), "") << ranks;
  engine::EngineOptions processes = Fp8(3);
  processes.launch = engine::Launch::kProcesses;
  EXPECT_EQ(demo.Difference(processes), "");
  engine::EngineOptions reference = Fp8(1);
  reference.kernels.rows = "ref";
  EXPECT_EQ(demo.Difference(reference), "");
}

// Sliding windows and a latent.
TEST(KvDtype, Fp8HasTheSameBytesForEveryFamily) {
  for (const char* family : {"gemma3", "gpt_oss", "deepseek_v3"}) {
    const Model model(CaseDir(family));
    EXPECT_NE(model.Difference({}), "") << family << ", float32";
    EXPECT_EQ(model.Difference(Fp8(3, 40)), "") << family;
  }
}

}  // namespace
}  // namespace trivet
