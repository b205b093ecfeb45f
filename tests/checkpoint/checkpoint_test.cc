// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "quant/convert.h"
#include "tests/checkpoint/safetensors_bytes.h"
#include "tests/io/temp_dir.h"
#include "tests/support/paths.h"

namespace trivet::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Notices = std::vector<std::string>;

constexpr const char* kIndexName = "model.safetensors.index.json";

std::string Text(const Checkpoint& checkpoint, std::string_view name) {
  const TensorInfo* info = checkpoint.Find(name);
  if (info == nullptr) return "absent";
  std::string text(static_cast<size_t>(info->bytes), '\0');
  const Status status = checkpoint.Read(*info, 0, std::as_writable_bytes(std::span(text)));
  return status.ok() ? text : status.error().message;
}

TEST(Checkpoint, OpensASingleFileByDirectoryOrPath) {
  const TempDir dir;
  dir.Write("model.safetensors", TwoTensorFile("y", "x"));
  for (const std::string& path : {dir.Path(), dir.Path("model.safetensors")}) {
    Notices notices;
    const auto checkpoint = Checkpoint::Open(path, &notices);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_THAT(notices, IsEmpty());
    ASSERT_EQ(checkpoint->tensors().size(), 2u);
    EXPECT_EQ(checkpoint->tensors()[0].name, "x");
    EXPECT_EQ(checkpoint->total_bytes(), 8);
    EXPECT_EQ(Text(*checkpoint, "y"), "aaaa");
    EXPECT_EQ(Text(*checkpoint, "x"), "bbbb");
    EXPECT_EQ(checkpoint->Find("z"), nullptr);
    EXPECT_EQ(checkpoint->FileName(0), dir.Path("model.safetensors"));
  }
}

TEST(Checkpoint, PrefersTheSingleFileAndSaysSo) {
  const TempDir dir;
  dir.Write("model.safetensors", TwoTensorFile("a", ""));
  dir.Write(kIndexName, "not JSON");
  Notices notices;
  ASSERT_TRUE(Checkpoint::Open(dir.Path(), &notices).ok());
  EXPECT_THAT(notices, ElementsAre(HasSubstr("found model.safetensors and model.safetensors.index.json")));
}

TEST(Checkpoint, FollowsTheIndex) {
  const TempDir dir;
  dir.Write("m-1", TwoTensorFile("a", "shared"));
  dir.Write("m-2", TwoTensorFile("shared", "b"));
  dir.Write(kIndexName, R"({"metadata":{"total_size":12},"weight_map":{"b":"m-2","shared":"m-2","a":"m-1"}})");
  Notices notices;
  const auto checkpoint = Checkpoint::Open(dir.Path(), &notices);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
  EXPECT_EQ(checkpoint->total_bytes(), 12);
  EXPECT_EQ(Text(*checkpoint, "a"), "aaaa");
  EXPECT_EQ(Text(*checkpoint, "b"), "bbbb");
  EXPECT_EQ(Text(*checkpoint, "shared"), "aaaa");  // the second shard's, as mapped
  EXPECT_EQ(checkpoint->FileName(checkpoint->Find("shared")->file), dir.Path("m-2"));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("1 tensors are in a shard where the index does not map them, the first is "
                                             "\"shared\"")));
}

TEST(Checkpoint, NoticesAWrongTotalSize) {
  const TempDir dir;
  dir.Write("m-1", TwoTensorFile("a", "b"));
  dir.Write(kIndexName, R"({"metadata":{"total_size":9},"weight_map":{"a":"m-1","b":"m-1"}})");
  Notices notices;
  ASSERT_TRUE(Checkpoint::Open(dir.Path(), &notices).ok());
  EXPECT_THAT(notices, ElementsAre(HasSubstr("total_size says 9 bytes, the tensors have 8")));
}

TEST(Checkpoint, NoticesTensorsTheIndexLeavesOut) {
  const TempDir dir;
  dir.Write("m-1", TwoTensorFile("a", "z"));
  dir.Write(kIndexName, R"({"weight_map":{"a":"m-1"}})");
  Notices notices;
  const auto checkpoint = Checkpoint::Open(dir.Path(), &notices);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->Find("z"), nullptr);
  EXPECT_THAT(notices, ElementsAre(HasSubstr("the first is \"z\"")));
}

void ExpectRefused(const TempDir& dir, Code code, const std::string& message) {
  Notices notices;
  const auto checkpoint = Checkpoint::Open(dir.Path(), &notices);
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.error().code, code);
  EXPECT_THAT(checkpoint.error().message, HasSubstr(dir.Path()));
  EXPECT_THAT(checkpoint.error().message, HasSubstr(message));
}

TEST(Checkpoint, RefusesAMissingShard) {
  const TempDir dir;
  dir.Write("m-1", TwoTensorFile("a", ""));
  dir.Write(kIndexName, R"({"weight_map":{"a":"m-1","b":"m-2"}})");
  ExpectRefused(dir, Code::kNotFound, "expected the shard \"m-2\" beside it");
}

TEST(Checkpoint, RefusesATensorThatIsNotInItsShard) {
  const TempDir dir;
  dir.Write("m-1", TwoTensorFile("a", "c"));
  for (const std::string name : {"0", "b", "z"}) {  // before, between and after those there are
    dir.Write(kIndexName, R"({"weight_map":{"a":"m-1",")" + name + R"(":"m-1"}})");
    ExpectRefused(dir, Code::kInvalid, "expected tensor \"" + name + "\" in shard \"m-1\"");
  }
}

TEST(Checkpoint, RefusesAPathInTheIndex) {
  const TempDir dir;
  dir.Write(kIndexName, R"({"weight_map":{"a":"../m-1"}})");
  ExpectRefused(dir, Code::kInvalid, "file name without path");
}

TEST(Checkpoint, RefusesAMalformedShard) {
  const TempDir dir;
  dir.Write("m-1", "short");
  dir.Write(kIndexName, R"({"weight_map":{"a":"m-1"}})");
  ExpectRefused(dir, Code::kInvalid, "m-1: expected a safetensors file of at least 8 bytes");
}

TEST(Checkpoint, SaysWhatIsMissing) {
  const TempDir dir;
  ExpectRefused(dir, Code::kNotFound, "expected model.safetensors or model.safetensors.index.json, found neither");
  Notices notices;
  EXPECT_EQ(Checkpoint::Open(dir.Path("none"), &notices).error().code, Code::kNotFound);
}

TEST(Checkpoint, ReadsRanges) {
  const TempDir dir;
  dir.Write("model.safetensors", FileBytes(R"({"t":{"dtype":"U8","shape":[6],"data_offsets":[0,6]}})", "012345"));
  Notices notices;
  const auto checkpoint = Checkpoint::Open(dir.Path(), &notices);
  ASSERT_TRUE(checkpoint.ok());
  std::string part(3, '\0');
  ASSERT_TRUE(checkpoint->Read(*checkpoint->Find("t"), 2, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_EQ(part, "234");
  EXPECT_DEATH((void)checkpoint->Read(*checkpoint->Find("t"), 4, std::as_writable_bytes(std::span(part))),
               "t: 3 bytes at 4 of 6");
}

TEST(Checkpoint, RefusesToReadAFileThatChangedSize) {
  const TempDir dir;
  const std::string file = TwoTensorFile("a", "b");
  dir.Write("model.safetensors", file);
  Notices notices;
  const auto checkpoint = Checkpoint::Open(dir.Path(), &notices);
  ASSERT_TRUE(checkpoint.ok());
  for (const size_t bytes : {file.size() - 1, file.size() + 1}) {
    std::filesystem::resize_file(dir.Path("model.safetensors"), bytes);
    EXPECT_THAT(Text(*checkpoint, "a"), HasSubstr("the file changed"));
  }
  std::filesystem::resize_file(dir.Path("model.safetensors"), file.size());
  EXPECT_EQ(Text(*checkpoint, "a"), "aaaa");
}

TEST(Checkpoint, OpensTheDemoModel) {
  const std::string dir = DemoDir();
  Notices notices;
  const auto checkpoint = Checkpoint::Open(dir, &notices);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_THAT(notices, IsEmpty());
  EXPECT_EQ(checkpoint->total_bytes(), 27048128);
  const TensorInfo* embedding = checkpoint->Find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(ShapeText(embedding->shape), "[4096, 256]");
  EXPECT_EQ(embedding->dtype, tensor::DType::kBF16);
  std::vector<std::byte> row(512);
  ASSERT_TRUE(checkpoint->Read(*embedding, 512 * 4095, row).ok());
  std::vector<float> values(256);
  ASSERT_TRUE(quant::DecodeToFloat(embedding->dtype, row, values).ok());
  for (const float value : values) EXPECT_LT(std::abs(value), 10.0f);
}

}  // namespace
}  // namespace trivet::checkpoint
