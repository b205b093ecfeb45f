// SPDX-License-Identifier: Apache-2.0
#include "engine/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/engine/small_model.h"
#include "tests/engine/tiny_gguf.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const InspectOptions kEverything = {true, true, {}};

// What is found in a file of these tensors.
Inspection InspectTiny(const Json& metadata, const std::vector<TinyTensor>& tensors, int64_t infinite = -1) {
  const TempDir dir;
  dir.Write("m.gguf", TinyGguf(metadata, tensors, infinite));
  return Inspect(dir.Path("m.gguf"), kEverything);
}

const Json& Row(const Inspection& found, const std::string& name) {
  static const Json none = Json::object();
  for (const Json& row : found.facts.at("tensors").at("list")) {
    if (row.at("name") == name) return row;
  }
  return none;
}

TEST(Inspect, ASoundGgufFile) {
  const Inspection found = InspectTiny(TinyMetadata(), TinyTensors());
  EXPECT_THAT(found.defects, IsEmpty());
  EXPECT_THAT(found.notices, IsEmpty());
  EXPECT_EQ(found.facts["stop_tokens"], Json({2}));
  EXPECT_EQ(found.facts["tokenizer"]["vocab_size"], 273);
  EXPECT_EQ(found.facts["weights_read"], found.facts["tensors"]["bytes"]);
  const Json& query = Row(found, "blk.0.attn_q.weight");
  EXPECT_EQ(query["logical"], "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(query["role"], "matrix");
  EXPECT_EQ(query["parts"], Json({"layers.0.attn.qkv"}));
  EXPECT_EQ(query["even_ranks"], Json({1, 2}));
  EXPECT_EQ(Row(found, "blk.0.ffn_down.weight")["even_ranks"], Json({1, 3}));
  EXPECT_FALSE(Row(found, "output_norm.weight").contains("axis"));
}

TEST(Inspect, ASoundDirectory) {
  const SmallModel model;
  const Inspection found = Inspect(model.dir().Path(), kEverything);
  EXPECT_THAT(found.defects, ElementsAre(HasSubstr("tokenizer.json")));  // it has none
  EXPECT_EQ(Row(found, "model.layers.0.linear_attn.A_log")["role"], "vector");
  const Inspection demo = Inspect(DemoDir(), {});
  EXPECT_THAT(demo.defects, IsEmpty());
  EXPECT_FALSE(demo.facts["tensors"].contains("list"));
  EXPECT_FALSE(demo.facts.contains("weights_read"));
}

TEST(Inspect, MissingAndSurplusTensors) {
  std::vector<TinyTensor> tensors = TinyTensors();
  std::erase_if(tensors, [](const TinyTensor& tensor) { return tensor.name == "blk.0.ffn_up.weight"; });
  tensors.push_back({"strange.weight", {32}});
  EXPECT_THAT(InspectTiny(TinyMetadata(), tensors).defects,
              ElementsAre(HasSubstr("model.layers.0.mlp.up_proj.weight"),
                          HasSubstr("1 tensors such as strange.weight: not part of this family")));
}

TEST(Inspect, NumbersThatAreNone) {
  const Inspection found = InspectTiny(TinyMetadata(), TinyTensors(), 32 * 273 + 5);
  EXPECT_THAT(found.defects, ElementsAre(HasSubstr("model.norm.weight: expected finite numbers, found 0 NaN and 1 "
                                                   "infinite, the first at element 5")));
  const TempDir dir;
  dir.Write("m.gguf", TinyGguf(TinyMetadata(), TinyTensors(), 32 * 273 + 5));
  EXPECT_THAT(Inspect(dir.Path("m.gguf"), {}).defects, IsEmpty());  // found by the deep look only
}

TEST(Inspect, TokenizersThatBelongToAnotherModel) {
  std::vector<TinyTensor> tensors = TinyTensors();
  tensors[0].dims[1] = 272;
  EXPECT_THAT(InspectTiny(TinyMetadata(), tensors).defects,
              ElementsAre(HasSubstr("tokenizer: expected at most 272 ids, as many as the model has, found 273")));
  Json metadata = TinyMetadata();
  metadata["tokenizer.ggml.bos_token_id"] = 999;
  EXPECT_THAT(InspectTiny(metadata, TinyTensors()).defects,
              ElementsAre(HasSubstr("\"tokenizer.ggml.bos_token_id\": expected an id below 273")));
}

// What whoever runs the model is told, and no more.
TEST(Inspect, EndTokensBeyondTheVocabularyAreNoticed) {
  const TempDir dir;
  for (const auto& file : std::filesystem::directory_iterator(DemoDir())) {
    const std::string name = file.path().filename();
    if (name != "generation_config.json") {
      std::filesystem::create_symlink(std::filesystem::absolute(file), dir.Path(name));
    }
  }
  dir.Write("generation_config.json", "{\"eos_token_id\": [2, 4096, 128009]}");
  const Inspection found = Inspect(dir.Path(), {});
  EXPECT_THAT(found.defects, IsEmpty());
  EXPECT_THAT(found.notices, Contains(HasSubstr("eos_token_id: expected ids below 4096, the vocabulary, found 4096, "
                                                "128009")));
  EXPECT_EQ(found.notices, support::Open(dir.Path()).notices);
  EXPECT_EQ(found.facts["stop_tokens"], Json({2}));
}

TEST(Inspect, AMissingChatTemplate) {
  Json metadata = TinyMetadata();
  metadata.erase("tokenizer.chat_template");
  EXPECT_THAT(InspectTiny(metadata, TinyTensors()).defects, ElementsAre(HasSubstr("chat template: expected one")));
}

TEST(Inspect, WhatCannotBeReadIsADefect) {
  const TempDir dir;
  EXPECT_THAT(Inspect(dir.Path(), {}).defects, ElementsAre(HasSubstr("config.json")));
  dir.Write("m.gguf", "GGUX");
  EXPECT_THAT(Inspect(dir.Path("m.gguf"), {}).defects, ElementsAre(HasSubstr("m.gguf: expected a GGUF file")));
  Json metadata = TinyMetadata();
  metadata["general.architecture"] = "mamba";
  EXPECT_THAT(InspectTiny(metadata, TinyTensors()).defects, Contains(HasSubstr("found mamba")));
}

}  // namespace
}  // namespace trivet::engine
