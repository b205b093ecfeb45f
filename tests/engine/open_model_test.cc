// SPDX-License-Identifier: Apache-2.0
#include "engine/open_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/writer.h"
#include "tests/engine/small_model.h"

namespace trivet::engine {
namespace {

using checkpoint::TensorDecl;
using tensor::DType;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ResolveModel, PathsAndNames) {
  const TempDir dir;
  std::filesystem::create_directories(dir.Path("models/demo"));
  EXPECT_EQ(ResolveModel(dir.Path(), "/none", "/none").value(), dir.Path());
  EXPECT_EQ(ResolveModel("demo", dir.Path(), "/none").value(), dir.Path() + "/models/demo");
  EXPECT_EQ(ResolveModel("demo", "/none", dir.Path("models")).value(), dir.Path("models/demo"));
  for (const char* model : {"", "absent", "./absent", "absent/demo", "../absent/models/demo"}) {
    const Result<std::string> resolved = ResolveModel(model, dir.Path(), "/none");
    ASSERT_FALSE(resolved.ok()) << model;
    EXPECT_EQ(resolved.error().code, Code::kNotFound);
    EXPECT_THAT(resolved.error().message, HasSubstr("MODEL: expected a directory"));
  }
}

// A model whose tensors are declared by `change` instead of as they should be; its weights are zeros.
class ChangedModel {
 public:
  template <class Change>
  explicit ChangedModel(const Change& change) {
    const SmallModel good;
    std::vector<TensorDecl> tensors;
    for (const checkpoint::TensorInfo& info : good.model().checkpoint.tensors()) {
      tensors.push_back({info.name, info.dtype, info.shape});
    }
    change(&tensors);
    std::filesystem::create_directories(dir_ + "/model");
    std::filesystem::copy_file(good.dir().Path("config.json"), dir_ + "/model/config.json",
                               std::filesystem::copy_options::overwrite_existing);
    auto writer = checkpoint::SafetensorsWriter::Create(dir_ + "/model/model.safetensors", tensors, {});
    CHECK_MSG(writer.ok(), writer.error().message);
    CHECK(writer->Append(std::vector<std::byte>(static_cast<size_t>(writer->remaining_bytes()))).ok());
    CHECK(writer->Finish().ok());
  }
  ~ChangedModel() { std::filesystem::remove_all(dir_); }
  ChangedModel(const ChangedModel&) = delete;
  ChangedModel& operator=(const ChangedModel&) = delete;

  Result<OpenedModel> Open() const { return OpenModel("changed", dir_ + "/model"); }

 private:
  const std::string dir_ = testing::TempDir() + "/trivet_changed_" + std::to_string(::getpid());
};

TensorDecl* Find(std::vector<TensorDecl>* tensors, const std::string& name) {
  for (TensorDecl& tensor : *tensors) {
    if (tensor.name == name) return &tensor;
  }
  CHECK_MSG(false, name);
  return nullptr;
}

TEST(OpenModel, AGoodModelHasNoNotices) {
  const ChangedModel model([](std::vector<TensorDecl>*) {});
  const Result<OpenedModel> opened = model.Open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->name, "changed");
  EXPECT_TRUE(opened->notices.empty());
  EXPECT_TRUE(TensorDefects(opened->geometry, opened->names, opened->checkpoint, opened->quant).empty());
}

TEST(OpenModel, AMissingTensorIsNamed) {
  const ChangedModel model([](std::vector<TensorDecl>* tensors) {
    std::erase_if(*tensors, [](const TensorDecl& t) { return t.name == "model.layers.1.linear_attn.A_log"; });
  });
  const Result<OpenedModel> opened = model.Open();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kInvalid);
  EXPECT_THAT(opened.error().message,
              StartsWith("model.layers.1.linear_attn.A_log: expected a tensor of shape [4], found none;"));
}

TEST(OpenModel, AWrongShapeIsShown) {
  const ChangedModel model([](std::vector<TensorDecl>* tensors) {
    Find(tensors, "lm_head.weight")->shape = {301, 64};
  });
  const Result<OpenedModel> opened = model.Open();
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, StartsWith("lm_head.weight: expected shape [300, 64], found [301, 64] in "));
}

TEST(OpenModel, ADtypeThatCannotBeLoadedIsShown) {
  const ChangedModel model([](std::vector<TensorDecl>* tensors) {
    Find(tensors, "model.layers.3.self_attn.k_proj.weight")->dtype = DType::kI8;
  });
  const Result<OpenedModel> opened = model.Open();
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, StartsWith("model.layers.3.self_attn.k_proj.weight: expected "));
  EXPECT_THAT(opened.error().message, HasSubstr("I8"));
}

TEST(OpenModel, SeveralDefectsAreCounted) {
  const ChangedModel model([](std::vector<TensorDecl>* tensors) {
    for (TensorDecl& tensor : *tensors) {
      if (tensor.name.find("post_attention_layernorm") != std::string::npos) tensor.shape = {63};
    }
  });
  const Result<OpenedModel> opened = model.Open();
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("model.layers.0.post_attention_layernorm.weight"));
  EXPECT_THAT(opened.error().message, HasSubstr("(3 more like it"));
}

TEST(OpenModel, TensorsThatAreNotNeededAreNoticed) {
  const ChangedModel model([](std::vector<TensorDecl>* tensors) {
    tensors->push_back({"mtp.layers.0.a", DType::kI8, {2}});
    tensors->push_back({"mtp.layers.0.b", DType::kI8, {2}});
    tensors->push_back({"strange", DType::kBool, {1}});
  });
  const Result<OpenedModel> opened = model.Open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->notices, ElementsAre("2 tensors such as mtp.layers.0.a: multi-token-prediction head",
                                           "1 tensors such as strange: not part of this family, not loaded"));
}

// Both files are known to name ids of a larger vocabulary: the model is fine without them, and whoever runs it is told.
TEST(OpenModel, EndTokensBeyondTheVocabularyAreNoticedAndLeftOut) {
  const SmallModel small;
  const int64_t vocab = small.vocab();
  const std::string what = fmt::format("eos_token_id: expected ids below {}, the vocabulary, found ", vocab);
  small.dir().Write("generation_config.json", fmt::format("{{\"eos_token_id\": [2, {}, {}]}}", vocab - 1, vocab));
  const Result<OpenedModel> opened = OpenModel("small", small.dir().Path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->files.stop_tokens, ElementsAre(2, vocab - 1));
  EXPECT_THAT(opened->notices, ElementsAre(what + fmt::format("{}: not used, since no token has such an id", vocab)));
  // None is left.
  checkpoint::ModelFiles endless;
  endless.stop_tokens = {128001, 128009};
  std::vector<std::string> notices;
  DropImpossibleStops(vocab, &endless, &notices);
  EXPECT_THAT(endless.stop_tokens, ElementsAre());
  EXPECT_THAT(notices,
              ElementsAre(what + "128001, 128009: not used, since no token has such an id; no other one ends a "
                                 "text"));
}

TEST(OpenModel, ADirectoryWithoutAModelIsNone) {
  const TempDir dir;
  const Result<OpenedModel> opened = OpenModel("empty", dir.Path());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace trivet::engine
