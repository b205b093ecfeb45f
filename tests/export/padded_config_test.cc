// SPDX-License-Identifier: Apache-2.0
#include "export/padded_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/export/sources.h"

namespace trivet::exporter {
namespace {

using testing::HasSubstr;

TEST(PaddedConfig, StatesCountsAndWhatFollowedFromThem) {
  const engine::OpenedModel model = support::Open(CaseDir("qwen2"));
  plan::Geometry padded = model.geometry;
  padded.attention.q_heads *= 2;
  padded.attention.kv_heads *= 2;
  padded.mlp_width += 32;
  checkpoint::ModelFiles files = model.files;
  files.config.erase("head_dim");
  const Result<Json> config = PaddedConfig(files, model.geometry, padded);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ((*config)["num_attention_heads"], padded.attention.q_heads);
  EXPECT_EQ((*config)["num_key_value_heads"], padded.attention.kv_heads);
  EXPECT_EQ((*config)["head_dim"], model.geometry.attention.head_dim);
  EXPECT_EQ((*config)["intermediate_size"], padded.mlp_width);
  EXPECT_EQ((*config)["hidden_size"], files.config["hidden_size"]);
}

TEST(PaddedConfig, ChangesTheTextModelOfAWrapper) {
  const engine::OpenedModel model = support::Open(CaseDir("qwen3"));
  checkpoint::ModelFiles files = model.files;
  files.config = {{"text_config", model.files.config}, {"vision_config", {{"num_attention_heads", 16}}}};
  plan::Geometry padded = model.geometry;
  padded.vocab += 64;
  const Result<Json> config = PaddedConfig(files, model.geometry, padded);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ((*config)["text_config"]["vocab_size"], padded.vocab);
  EXPECT_FALSE(config->contains("vocab_size"));
  EXPECT_EQ((*config)["vision_config"]["num_attention_heads"], 16);
}

TEST(PaddedConfig, LatentHeadsAreKvHeadsAndMtpHeadsAreGone) {
  const engine::OpenedModel model = support::Open(CaseDir("deepseek_v3"));
  plan::Geometry padded = model.geometry;
  padded.attention.q_heads = 6;
  const Result<Json> config = PaddedConfig(model.files, model.geometry, padded);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ((*config)["num_attention_heads"], 6);
  EXPECT_EQ((*config)["num_key_value_heads"], 6);
  EXPECT_EQ((*config)["num_nextn_predict_layers"], 0);
}

TEST(PaddedConfig, RefusesWhatItsKeysCannotState) {
  const engine::OpenedModel model = support::Open(CaseDir("deepseek_v3"));
  plan::Geometry padded = model.geometry;
  padded.moe.shared_width += 16;  // the config knows one width for routed and shared experts
  const Result<Json> config = PaddedConfig(model.files, model.geometry, padded);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, Code::kInfeasible);
  EXPECT_THAT(config.error().message, HasSubstr("the widths of all experts"));
}

}  // namespace
}  // namespace trivet::exporter
