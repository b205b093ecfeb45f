// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "tests/io/temp_dir.h"

namespace trivet::checkpoint {
namespace {

using tensor::DType;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using Decls = std::vector<TensorDecl>;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempDir dir;
  const std::string path = dir.Path("out.safetensors");
  const Decls decls = {{"z \"quoted\" \xe6\xb1\x89", DType::kI32, {1, 2}},
                       {"scalar", DType::kBF16, {}},
                       {"none", DType::kF32, {0, 5}},
                       {"nibbles", DType::kF4, {2, 3}}};
  auto writer = SafetensorsWriter::Create(path, decls, {{"format", "pt"}, {"text", "a\nb"}});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_EQ(writer->remaining_bytes(), 13);
  ASSERT_TRUE(writer->Append(Bytes("IIII")).ok());
  ASSERT_TRUE(writer->Append(Bytes("iiiiBBF")).ok());
  EXPECT_EQ(dir.Count(), 1);
  EXPECT_FALSE(OpenSafetensors(path).ok());
  ASSERT_TRUE(writer->Append(Bytes("ff")).ok());
  ASSERT_TRUE(writer->Finish().ok());

  const auto header = OpenSafetensors(path);
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_THAT(header->header.metadata, ElementsAre(Pair("format", "pt"), Pair("text", "a\nb")));
  EXPECT_EQ(header->header.tensors[0].offset % 8, 0);
  std::vector<std::string> notices;
  const auto checkpoint = Checkpoint::Open(path, &notices);
  ASSERT_TRUE(checkpoint.ok());
  const std::string contents[] = {"IIIIiiii", "BB", "", "Fff"};
  for (size_t i = 0; i < decls.size(); ++i) {
    const TensorInfo* info = checkpoint->Find(decls[i].name);
    ASSERT_NE(info, nullptr) << decls[i].name;
    EXPECT_EQ(info->dtype, decls[i].dtype);
    EXPECT_EQ(info->shape, decls[i].shape);
    std::string text(static_cast<size_t>(info->bytes), '\0');
    ASSERT_TRUE(checkpoint->Read(*info, 0, std::as_writable_bytes(std::span(text))).ok());
    EXPECT_EQ(text, contents[i]);
  }
}

TEST(SafetensorsWriter, PadsEveryHeaderToEight) {
  const TempDir dir;
  for (int length = 1; length <= 9; ++length) {
    const Decls decls = {{std::string(static_cast<size_t>(length), 'n'), DType::kU8, {1}}};
    auto writer = SafetensorsWriter::Create(dir.Path("f"), decls, {});
    ASSERT_TRUE(writer->Append(Bytes("x")).ok());
    ASSERT_TRUE(writer->Finish().ok());
    EXPECT_EQ(OpenSafetensors(dir.Path("f"))->header.tensors[0].offset % 8, 0);
  }
}

TEST(SafetensorsWriter, HoldsTheCallerToTheDeclaration) {
  const TempDir dir;
  {
    auto writer = SafetensorsWriter::Create(dir.Path("f"), Decls{{"t", DType::kU8, {4}}}, {});
    ASSERT_TRUE(writer->Append(Bytes("aaa")).ok());
    EXPECT_THAT(writer->Finish().error().message, HasSubstr("expected 1 more bytes of tensors, found the end"));
    EXPECT_THAT(writer->Append(Bytes("aa")).error().message, HasSubstr("at most 1 more bytes of tensors, found 2"));
  }
  EXPECT_EQ(dir.Count(), 0);
}

TEST(SafetensorsWriter, RefusesWhatNoReaderAccepts) {
  const TempDir dir;
  const auto message = [&](const Decls& decls) {
    const auto writer = SafetensorsWriter::Create(dir.Path("f"), decls, {});
    return writer.ok() ? "accepted" : writer.error().message;
  };
  for (const std::string& name : {std::string("a\0b", 3), std::string("\xff"), std::string("__metadata__")}) {
    EXPECT_THAT(message({{name, DType::kU8, {1}}}), HasSubstr("a unique UTF-8 name"));
  }
  EXPECT_THAT(message({{"t", DType::kU8, {1}}, {"t", DType::kU8, {1}}}), HasSubstr("tensor \"t\": expected a unique"));
  EXPECT_THAT(message({{"t", DType::kF4, {1}}}), HasSubstr("tensor \"t\": expected a whole number of bytes"));
  const std::vector<int64_t> huge = {int64_t{1} << 59};
  Decls many;
  for (int i = 0; i < 16; ++i) many.push_back({"t" + std::to_string(i), DType::kU8, huge});
  EXPECT_THAT(message(many), HasSubstr("expected a file below 2^63 bytes"));
  EXPECT_EQ(dir.Count(), 0);
}

}  // namespace
}  // namespace trivet::checkpoint
