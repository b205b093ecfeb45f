// SPDX-License-Identifier: Apache-2.0
// Models of odd geometries: whatever the extents, every layout gives the bytes of one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <ostream>

#include "plan/axis_rules.h"
#include "tests/io/temp_dir.h"
#include "tests/support/model_runs.h"
#include "tests/support/synthetic_model.h"

namespace trivet {
namespace {

struct Odd {
  const char* name;
  support::SyntheticModel model;
};

void PrintTo(const Odd& odd, std::ostream* out) { *out << odd.name; }

support::SyntheticModel With(void (*change)(support::SyntheticModel* model)) {
  support::SyntheticModel model;
  change(&model);
  return model;
}

std::vector<Odd> OddModels() {
  using M = support::SyntheticModel;
  using tensor::DType;
  return {
      {"SmallHeads", With([](M* m) { m->q_heads = 6, m->kv_heads = 3, m->head_dim = 32, m->vocab = 321; })},
      {"WideHeads", With([](M* m) { m->head_dim = 80, m->k_dim = 80, m->v_dim = 80, m->tied_head = true; })},
      {"OneValueHeadPerKeyHead", With([](M* m) { m->k_heads = m->v_heads = 3, m->q_heads = m->kv_heads = 3; })},
      {"ThreeValueHeadsPerKeyHead", With([](M* m) { m->k_heads = 2, m->v_heads = 6, m->v_dim = 48, m->kv_heads = 1; })},
      {"SevenExperts", With([](M* m) { m->experts = 7, m->top_k = 3, m->expert_width = 100, m->shared_width = 20; })},
      {"NoSharedExpert", With([](M* m) { m->experts = 5, m->expert_width = 50, m->shared_width = 0; })},
      {"SeparateExperts", With([](M* m) { m->experts = 3, m->top_k = 3, m->fused_experts = false, m->vocab = 33; })},
      {"Dense", With([](M* m) { m->experts = 0, m->mlp_width = 100, m->hidden = 72, m->files = 2; })},
      {"DenseF32", With([](M* m) { m->experts = 0, m->mlp_width = 336, m->dtype = DType::kF32, m->hidden = 300; })},
      {"F16", With([](M* m) { m->dtype = DType::kF16, m->hidden = 40, m->vocab = 97, m->conv_width = 2; })},
      {"MixedDtypes", With([](M* m) { m->some_f32 = true, m->files = 3, m->hidden = 258, m->tied_head = true; })},
      {"AttentionOnly", With([](M* m) { m->attention_interval = 1, m->layers = 2, m->q_heads = 5, m->kv_heads = 5; })},
      {"DeltaNetOnly", With([](M* m) { m->attention_interval = 9, m->k_dim = 16, m->v_dim = 24, m->conv_width = 5; })},
      {"OddExtents", With([](M* m) {
         m->hidden = 51, m->head_dim = 34, m->v_dim = 22, m->k_dim = 31, m->expert_width = 37, m->shared_width = 9,
         m->vocab = 1;
       })},
      {"HugeHead", With([](M* m) { m->head_dim = 512, m->q_heads = 3, m->kv_heads = 1, m->v_dim = 272; })},
  };
}

class Geometry : public testing::TestWithParam<Odd> {};

TEST_P(Geometry, EveryLayoutGivesTheBytesOfOneRank) {
  const TempDir dir;
  const Status written = support::WriteSyntheticModel(GetParam().model, dir.Path());
  ASSERT_TRUE(written.ok()) << written.error().message;
  const engine::OpenedModel model = support::Open(dir.Path());
  const int64_t vocab = model.geometry.vocab;
  const support::TokenSet set = {support::RandomTokens(9, vocab, 1), support::RandomTokens(1, vocab, 2),
                                 support::RandomTokens(70, vocab, 3)};
  const Result<std::vector<float>> one = support::Logits(model, {}, set);
  ASSERT_TRUE(one.ok()) << one.error().message;
  for (const float logit : *one) ASSERT_TRUE(std::isfinite(logit));
  int layouts = 0;
  const auto expect_equal = [&](const engine::EngineOptions& options) {
    const Result<std::vector<float>> found = support::Logits(model, options, set);
    ASSERT_TRUE(found.ok()) << support::Describe(options) << ": " << found.error().message;
    EXPECT_EQ(support::FirstDifference(*one, *found, vocab), "") << support::Describe(options);
    ++layouts;
  };
  for (const int64_t ranks : {1, 2, 3, 5, 8}) {
    engine::EngineOptions options;
    options.layout.ranks = ranks;
    for (const int64_t pad_to : {0, 3, 7}) {
      options.layout.pad_to = pad_to;
      expect_equal(options);
    }
    for (const plan::AxisRule& axis : plan::AxisRules(model.geometry, ranks, 0)) {
      for (const plan::CutRule& cut : axis.cuts) {
        options.layout = {};
        options.layout.ranks = ranks;
        options.layout.cuts[axis.axis] = cut.word;
        options.layout.pad_to = ranks == 3 ? 5 : 0;
        expect_equal(options);
      }
    }
  }
  for (const int64_t ranks : {3, 8}) {
    if (!model.geometry.Uses(plan::ChannelMixer::kMoe)) break;
    engine::EngineOptions options;
    options.layout.ranks = ranks;
    options.layout.placement = plan::Placement::Random(model.geometry.moe.experts, ranks / 2 + 1, 1).value();
    expect_equal(options);
  }
  engine::EngineOptions reference;
  reference.layout.ranks = 3;
  reference.kernels.rows = "ref";
  expect_equal(reference);
  std::printf("%s: %d layouts, %zu logits each\n", GetParam().name, layouts, one->size());
}

INSTANTIATE_TEST_SUITE_P(Odd, Geometry, testing::ValuesIn(OddModels()),
                         [](const testing::TestParamInfo<Odd>& info) { return info.param.name; });

}  // namespace
}  // namespace trivet
