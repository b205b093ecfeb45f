// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/checkpoint.h"
#include "tests/checkpoint/gguf_bytes.h"
#include "tests/io/temp_dir.h"

namespace trivet::checkpoint {
namespace {

using testing::HasSubstr;

Result<GgufHeader> Parse(const std::string& file) {
  const ByteSource source = [&](int64_t offset, std::span<std::byte> dst) -> Status {
    CHECK(offset >= 0 && static_cast<size_t>(offset) + dst.size() <= file.size());
    const auto bytes = std::as_bytes(std::span(file));
    std::copy_n(bytes.begin() + offset, dst.size(), dst.begin());
    return {};
  };
  return ParseGguf(source, static_cast<int64_t>(file.size()), "FILE");
}

std::string Sound() {
  return GgufBytes(
      {PairText("general.architecture", "gemma3"), PairU32("gemma3.block_count", 18),
       Pair("f", 6, Number(0x3FC00000, 4)), Pair("b", 7, Number(1, 1)), Pair("i", 5, Number(0xFFFFFFFE, 4)),
       Pair("tokenizer.ggml.tokens", 9, Number(8, 4) + Number(2, 8) + LengthAndText("a") + LengthAndText("\xff"))},
      {Entry("a.weight", {32, 2}, 8, 0), Entry("b.weight", {4}, 0, 96)}, std::string(112, 'x'));
}

TEST(Gguf, ReadsMetadataAndTensors) {
  const auto header = Parse(Sound());
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(*Find(header->metadata, "general.architecture"), "gemma3");
  EXPECT_EQ(*Find(header->metadata, "gemma3.block_count"), 18);
  EXPECT_EQ(*Find(header->metadata, "f"), 1.5);
  EXPECT_EQ(*Find(header->metadata, "b"), true);
  EXPECT_EQ(*Find(header->metadata, "i"), -2);
  EXPECT_EQ(Find(header->metadata, "tokenizer.ggml.tokens")->size(), 2U);
  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[0].name, "a.weight");
  EXPECT_EQ(header->tensors[0].dtype, tensor::DType::kQ8_0);
  EXPECT_EQ(header->tensors[0].shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(header->tensors[0].bytes, 68);
  EXPECT_EQ(header->tensors[1].offset, header->tensors[0].offset + 96);
  EXPECT_EQ(header->tensors[0].offset % 32, 0);
}

TEST(Gguf, EveryPrefixIsRefused) {
  const std::string file = Sound();
  for (size_t size = 0; size < file.size(); size += size < 700 ? 1 : 7) {
    EXPECT_FALSE(Parse(file.substr(0, size)).ok()) << size;
  }
}

struct BadFile {
  std::string file;
  const char* message;
  Code code = Code::kInvalid;
};

TEST(Gguf, EachDefectHasAMessageOfItsOwn) {
  const std::string huge = Number(uint64_t{1} << 60, 8);
  std::string nested;
  for (int i = 0; i < 5; ++i) nested += Number(9, 4) + Number(1, 8);
  const std::vector<std::string> none;
  std::string big_endian = "GGUF";
  big_endian.append("\0\0\0\3", 4).append(16, '\0');
  const BadFile cases[] = {
      {"GGML" + Number(3, 4) + std::string(16, '\0'), "begins with \"GGUF\""},
      {"GGUF" + Number(1, 4) + std::string(16, '\0'), "version 2 or 3", Code::kUnsupported},
      {big_endian, "little-endian", Code::kUnsupported},
      {"GGUF" + Number(3, 4) + huge + Number(0, 8), "tensors, as many as"},
      {"GGUF" + Number(3, 4) + Number(0, 8) + huge, "metadata pairs, as many as"},
      {GgufBytes({huge + Number(4, 4) + Number(0, 4)}, none, ""), "a string of at most"},
      {GgufBytes({PairU32("a b", 1)}, none, ""), "printable ASCII"},
      {GgufBytes({PairU32("a", 1), PairU32("a", 2)}, none, ""), "\"a\" twice"},
      {GgufBytes({Pair("a", 13, Number(0, 8))}, none, ""), "known value type"},
      {GgufBytes({Pair("a", 7, Number(2, 1))}, none, ""), "boolean of 0 or 1"},
      {GgufBytes({PairText("a", "\xff")}, none, ""), "text in UTF-8"},
      {GgufBytes({Pair("a", 9, Number(0, 4) + huge)}, none, ""), "array elements, as many as"},
      {GgufBytes({Pair("a", 9, Number(77, 4) + Number(0, 8))}, none, ""), "array of a known type"},
      {GgufBytes({Pair("a", 9, nested)}, none, std::string(100, '\0')), "nested at most"},
      {GgufBytes(none, {Entry(std::string(65, 'a'), {32}, 0, 0)}, std::string(128, 'x')), "a string of at most"},
      {GgufBytes(none, {Entry("\xff", {32}, 0, 0)}, std::string(128, 'x')), "a name in UTF-8"},
      {GgufBytes(none, {Entry("a", {}, 0, 0)}, std::string(128, 'x')), "1 to 4 dimensions"},
      {GgufBytes(none, {Entry("a", {1, 1, 1, 1, 1}, 0, 0)}, std::string(128, 'x')), "1 to 4 dimensions"},
      {GgufBytes(none, {Entry("a", {~uint64_t{0}}, 0, 0)}, ""), "extents below 2^63"},
      {GgufBytes(none, {Entry("a", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)}, ""), "fits 63 bits"},
      {GgufBytes(none, {Entry("a", {32}, 99, 0)}, std::string(128, 'x')), "known tensor type"},
      {GgufBytes(none, {Entry("a", {256}, 10, 0)}, std::string(128, 'x')), "found Q2_K", Code::kUnsupported},
      {GgufBytes(none, {Entry("a", {256}, 20, 0)}, std::string(128, 'x')), "found IQ4_NL", Code::kUnsupported},
      {GgufBytes(none, {Entry("a", {48}, 8, 0)}, std::string(128, 'x')), "multiple of 32 elements"},
      {GgufBytes(none, {Entry("a", {4}, 0, ~uint64_t{0})}, std::string(128, 'x')), "offset below 2^63"},
      {GgufBytes(none, {Entry("a", {4}, 0, 8)}, std::string(128, 'x')), "multiple of 32, found 8"},
      {GgufBytes(none, {Entry("a", {40}, 0, 0)}, std::string(128, 'x')), "data within the 128 bytes"},
      {GgufBytes(none, {Entry("a", {4}, 0, 160)}, std::string(128, 'x')), "data within the 128 bytes"},
      {GgufBytes(none, {Entry("a", {4}, 0, 0), Entry("a", {4}, 0, 32)}, std::string(128, 'x')),
       "every tensor name once"},
      {GgufBytes(none, {Entry("a", {16}, 0, 0), Entry("b", {4}, 0, 32)}, std::string(128, 'x')), "an overlap at 32"},
      {GgufBytes({PairU32("general.alignment", 12)}, none, ""), "multiple of 8"},
      {GgufBytes({PairU32("general.alignment", 0)}, none, ""), "multiple of 8"},
  };
  for (const BadFile& bad : cases) {
    const auto header = Parse(bad.file);
    ASSERT_FALSE(header.ok()) << bad.message;
    EXPECT_THAT(header.error().message, HasSubstr(bad.message));
    EXPECT_EQ(header.error().code, bad.code) << bad.message;
  }
}

void WriteFile(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(Gguf, ACheckpointOpensOneFileAndRenamesItsTensors) {
  const TempDir dir;
  WriteFile(dir.Path("m.gguf"), Sound());
  std::vector<std::string> notices;
  auto checkpoint = Checkpoint::Open(dir.Path("m.gguf"), &notices);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(*Find(checkpoint->metadata(), "gemma3.block_count"), 18);
  const auto renamed = [](const TensorInfo& info) {
    std::vector<TensorInfo> infos(1, info);
    if (info.name == "a.weight") infos[0].name = "z";
    return infos;
  };
  ASSERT_TRUE(checkpoint->Remap(renamed).ok());
  ASSERT_NE(checkpoint->Find("z"), nullptr);
  std::vector<std::byte> bytes(68);
  ASSERT_TRUE(checkpoint->Read(*checkpoint->Find("z"), 0, bytes).ok());
  EXPECT_EQ(bytes[0], std::byte{'x'});
  const Status twice = checkpoint->Remap([](const TensorInfo& info) { return std::vector<TensorInfo>(2, info); });
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.error().message, HasSubstr("found two"));
}

TEST(Gguf, IsKnownByItsNameOrItsFirstBytes) {
  const TempDir dir;
  WriteFile(dir.Path("sha256-00ff"), Sound());
  WriteFile(dir.Path("notes.txt"), "GGML");
  WriteFile(dir.Path("short"), "GG");
  EXPECT_TRUE(IsGguf(dir.Path("sha256-00ff")));
  EXPECT_TRUE(IsGguf("not-there.gguf"));  // to be refused as one
  for (const char* other : {"notes.txt", "short", "not-there", "."}) EXPECT_FALSE(IsGguf(dir.Path(other))) << other;
  std::vector<std::string> notices;
  EXPECT_TRUE(Checkpoint::Open(dir.Path("sha256-00ff"), &notices).ok());
}

std::string Split(uint32_t number, const std::string& tensor) {
  return GgufBytes({PairU32("split.no", number), PairU32("split.count", 2), PairU32("split.tensors.count", 2)},
                   {Entry(tensor, {4}, 0, 0)}, std::string(16, 'x'));
}

TEST(Gguf, SplitFilesAreOneCheckpoint) {
  const TempDir dir;
  const std::string first = dir.Path("m-00001-of-00002.gguf"), second = dir.Path("m-00002-of-00002.gguf");
  std::vector<std::string> notices;
  WriteFile(first, Split(0, "a"));
  EXPECT_FALSE(Checkpoint::Open(first, &notices).ok());  // the second is missing
  WriteFile(second, Split(1, "b"));
  const auto both = Checkpoint::Open(first, &notices);
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(both->tensors().size(), 2U);
  EXPECT_EQ(both->FileName(both->Find("b")->file), second);
  const auto not_first = Checkpoint::Open(second, &notices);
  ASSERT_FALSE(not_first.ok());
  EXPECT_THAT(not_first.error().message, HasSubstr("give the first file"));
  WriteFile(second, Split(1, "a"));
  EXPECT_THAT(Checkpoint::Open(first, &notices).error().message, HasSubstr("found \"a\" again"));
  WriteFile(second, Split(0, "b"));
  EXPECT_THAT(Checkpoint::Open(first, &notices).error().message, HasSubstr("split.no 1"));
}

}  // namespace
}  // namespace trivet::checkpoint
