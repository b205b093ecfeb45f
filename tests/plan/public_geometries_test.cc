// SPDX-License-Identifier: Apache-2.0
// The planner on the geometries of published models, at rank counts that other engines refuse.
// docs/public-geometries.md is the golden file. After an intended change of the planner, write it anew and review the
// difference:
//   TRIVET_UPDATE_GOLDEN=1 build/tests/plan_test --gtest_filter='PublicGeometries.*'
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/str.h"
#include "plan/axis_rules.h"
#include "plan/cost.h"
#include "tests/plan/plan_fixtures.h"
#include "tests/support/paths.h"

namespace trivet::plan {
namespace {

// A published model: the keys of its config that a plan looks at, and the rank counts to plan for.
struct PublicModel {
  const char* name;
  const char* config;
  std::vector<int64_t> ranks;
  int64_t weight_block = 1;  // columns that share a scale
};

const PublicModel kModels[] = {
    {"Qwen2.5-7B (28/4 heads)",
     R"({"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768,
           "rope_theta": 1e6})",
     {8}},
    {"LLaMA-33B (52/52 heads)",
     R"({"model_type": "llama", "hidden_size": 6656, "num_hidden_layers": 60, "num_attention_heads": 52,
           "num_key_value_heads": 52, "intermediate_size": 17920, "vocab_size": 32000, "max_position_embeddings": 2048,
           "rope_theta": 1e6})",
     {3, 8}},
    {"Qwen3-14B (40/8 heads)",
     R"({"model_type": "qwen3", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "head_dim": 128,
           "num_key_value_heads": 8, "intermediate_size": 17408, "vocab_size": 151936, "max_position_embeddings": 40960,
           "rope_theta": 1e6})",
     {3, 5, 6}},
    {"Qwen3-32B (64/8 heads)",
     R"({"model_type": "qwen3", "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "head_dim": 128,
           "num_key_value_heads": 8, "intermediate_size": 25600, "vocab_size": 151936, "max_position_embeddings": 40960,
           "rope_theta": 1e6})",
     {3}},
    {"96/8 heads, 160 experts of 1536, vocabulary 151552 (as GLM-4.5)",
     R"({"model_type": "qwen3_moe", "hidden_size": 5120, "num_hidden_layers": 89, "num_attention_heads": 96,
           "head_dim": 128, "num_key_value_heads": 8, "intermediate_size": 12288, "moe_intermediate_size": 1536,
           "num_experts": 160, "num_experts_per_tok": 8, "norm_topk_prob": true, "vocab_size": 151552,
           "max_position_embeddings": 131072,
           "rope_theta": 1e6})",
     {6}},
    {"Qwen3-Next-80B-A3B (16/2 heads, 16/32 delta-net heads, 512 experts of 512)",
     R"({"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
           "head_dim": 256, "num_key_value_heads": 2, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
           "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
           "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
           "vocab_size": 151936, "max_position_embeddings": 262144,
           "rope_theta": 1e6})",
     {3}},
    {"Qwen3.5-27B (24/4 heads, 16/48 delta-net heads, MLP 17408)",
     R"({"model_type": "qwen3_5_text", "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 24,
           "head_dim": 256, "num_key_value_heads": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
           "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
           "intermediate_size": 17408, "vocab_size": 248320, "max_position_embeddings": 262144,
           "rope_theta": 1e6})",
     {3}},
    {"DeepSeek-V3 (128 latent heads, 256 experts of 2048)",
     R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
           "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
           "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
           "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 8, "topk_group": 4,
           "first_k_dense_replace": 3, "vocab_size": 129280, "max_position_embeddings": 4096,
           "rope_theta": 1e6})",
     {3, 5, 6, 7}},
    {"Qwen3-235B-A22B in FP8 (128 experts of 1536, 128 columns a scale)",
     R"({"model_type": "qwen3_moe", "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64,
           "head_dim": 128, "num_key_value_heads": 4, "intermediate_size": 12288, "moe_intermediate_size": 1536,
           "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "vocab_size": 151936,
           "max_position_embeddings": 40960,
           "rope_theta": 1e6})",
     {8},
     128},
    {"128 experts of 320 in FP8 (128 columns a scale)",
     R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
           "head_dim": 128, "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 320,
           "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "vocab_size": 151936,
           "max_position_embeddings": 40960,
           "rope_theta": 1e6})",
     {8},
     128},
};

Geometry GeometryOf(const PublicModel& model) {
  Result<Json> config = ParseJson(model.config, model.name);
  CHECK_MSG(config.ok(), config.error().message);
  Result<Geometry> geometry = ReadTextConfig(*config);
  CHECK_MSG(geometry.ok(), geometry.error().message);
  geometry->weight_block = model.weight_block;
  return std::move(geometry).value();
}

Layout Plan(const Geometry& geometry, int64_t ranks, std::map<std::string, std::string> cuts = {}) {
  Result<Layout> layout = MakeLayout(geometry, {.ranks = ranks, .cuts = std::move(cuts)});
  CHECK_MSG(layout.ok(), layout.error().message);
  return std::move(layout).value();
}

// Runs of equal counts, such as "9 x2, 8".
std::string Counts(const std::vector<int64_t>& counts) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < counts.size();) {
    size_t end = i;
    while (end < counts.size() && counts[end] == counts[i]) ++end;
    runs.push_back(end - i == 1 ? fmt::format("{}", counts[i]) : fmt::format("{} x{}", counts[i], end - i));
    i = end;
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

std::string Section(const PublicModel& model) {
  const Geometry geometry = GeometryOf(model);
  std::string text = fmt::format("\n## {}\n", model.name);
  for (const int64_t ranks : model.ranks) {
    const Layout layout = Plan(geometry, ranks);
    const LayoutCost cost = PriceLayout(geometry, layout, {});
    text += fmt::format("\n{} ranks: weights {:.2f}, KV cache {:.2f}, step {:.2f} times the ideal 1/{}.\n\n", ranks,
                        cost.weight_factor, cost.kv_factor, cost.step_factor, ranks);
    text += "| axis | unit | units | per rank | cut | factor | why |\n|---|---|---|---|---|---|---|\n";
    for (const AxisPlan& row : layout.axes) {
      text += fmt::format("| {} | {} | {} | {} | {} | {:.2f} | {} |\n", row.axis, row.unit, row.stock,
                          Counts(row.per_rank), row.cut, row.factor, row.reason);
    }
  }
  return text;
}

std::string Page() {
  std::string text =
      "# Plans of published models\n\n"
      "What `trivet plan` chooses for geometries that other engines refuse or pad. "
      "`tests/plan/public_geometries_test.cc`\n"
      "writes this page and compares with it; the columns are explained in `docs/sharding.md`.\n";
  for (const PublicModel& model : kModels) text += Section(model);
  return text;
}

TEST(PublicGeometries, PlansAreThoseOfThePage) {
  const std::string path = SourceRoot() + "/docs/public-geometries.md";
  const std::string page = Page();
  if (std::getenv("TRIVET_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(WriteTextFile(path, page).ok());
  }
  const Result<std::string> golden = ReadTextFile(path, 1 << 24);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const std::vector<std::string> expected = Split(*golden, '\n'), found = Split(page, '\n');
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], expected[i]) << "line " << i + 1;
}

// A step's price is the sum of its axes' prices, so no combination of legal cuts is cheaper when no cut of an axis is.
TEST(PublicGeometries, NoLegalCutIsCheaper) {
  for (const PublicModel& model : kModels) {
    const Geometry geometry = GeometryOf(model);
    for (const int64_t ranks : model.ranks) {
      const Layout chosen = Plan(geometry, ranks);
      for (const AxisRule& axis : AxisRules(geometry, ranks, 0)) {
        for (const std::string& word : LegalCuts(geometry, axis.axis, ranks)) {
          EXPECT_LE(axis.price(chosen.shards), axis.price(Plan(geometry, ranks, {{axis.axis, word}}).shards))
              << model.name << " at " << ranks << ": " << axis.axis << "=" << word;
        }
      }
    }
  }
}

// The same for small random models and every combination of cuts, by the price of the whole layout.
TEST(PublicGeometries, NoCombinationOfCutsIsCheaper) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 4; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    for (const int64_t ranks : {2, 3, 5}) {
      const std::vector<AxisRule> axes = AxisRules(geometry, ranks, 0);
      const auto price = [&](const Layout& layout) {
        double total = 0;
        for (const AxisRule& axis : axes) total += axis.price(layout.shards);
        return total;
      };
      const double chosen = price(Plan(geometry, ranks));
      std::vector<std::map<std::string, std::string>> combinations = {{}};
      for (const AxisRule& axis : axes) {
        std::vector<std::map<std::string, std::string>> longer;
        for (const auto& cuts : combinations) {
          for (const CutRule& rule : axis.cuts) {
            longer.push_back(cuts);
            longer.back()[axis.axis] = rule.word;
          }
        }
        combinations = std::move(longer);
      }
      for (const auto& cuts : combinations) {
        ASSERT_LE(chosen, price(Plan(geometry, ranks, cuts)) * (1 + 1e-12)) << "round " << round << " at " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace trivet::plan
