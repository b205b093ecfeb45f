// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/safetensors_bytes.h"
#include "tests/io/temp_dir.h"

namespace trivet::checkpoint {
namespace {

using tensor::DType;
using testing::HasSubstr;

std::string U8(const std::string& name, const std::string& shape, int64_t begin, int64_t end) {
  return "\"" + name + R"(":{"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) + "," +
         std::to_string(end) + "]}";
}

struct Malformed {
  const char* item;     // of the list of defects a loader must refuse
  std::string bytes;    // the whole file
  std::string message;  // what only this defect's message says
};

// Items 1 to 9: what the header is, and its entries.
std::vector<Malformed> MalformedHeaders() {
  const auto file = [](const std::string& header, const std::string& data = "") { return FileBytes(header, data); };
  const auto entry = [&](const std::string& members) { return file(R"({"t":{)" + members + "}}", "aaaa"); };
  const std::string dtype = R"("dtype":"U8")", shape = R"("shape":[4])", offsets = R"("data_offsets":[0,4])";
  std::string nul_padded = "{" + U8("t", "[4]", 0, 4) + "}";
  nul_padded += std::string(3, '\0');
  return {
      {"01Empty", "", "at least 8 bytes, found 0 bytes"},
      {"01Short", "1234567", "at least 8 bytes, found 7 bytes"},
      {"02HeaderTooLong", LengthPrefix(100'000'001) + "{}",
       "at most 100000000 bytes, found a header length of 100000001"},
      {"02HeaderLengthAllOnes", LengthPrefix(UINT64_MAX) + "{}", "found a header length of 18446744073709551615"},
      {"03HeaderBeyondFile", LengthPrefix(3) + "{}", "within the file's 10 bytes, found a header length of 3"},
      {"04NotUtf8", file("{\"\xff\":1}"), "header in UTF-8"},
      {"04Utf8Surrogate", file("{\"\xed\xa0\x80\":1}"), "header in UTF-8"},
      {"05NoHeader", file(""), "found an empty header"},
      {"05OnlySpace", file("  "), "found an empty header"},
      {"05Array", file("[1]"), "that is a JSON object, found \"[1]\""},
      {"05ByteOrderMark", file("\xef\xbb\xbf{}"), "that is a JSON object"},
      {"05NotJson", file("{t}"), "syntax error while parsing object key - invalid literal"},
      {"05CutJson", file("{"), "unexpected end of input"},
      {"05TextAfter", file("{} {"), "unexpected '{'; expected end of input"},
      {"05NulPadding", file(nul_padded, "aaaa"), "found a NUL byte at byte"},
      {"06EntryNoObject", file(R"({"t":4})"), "expected an object with dtype, shape and data_offsets, found 4"},
      {"06NoDtype", entry(shape + "," + offsets), "expected \"dtype\", found none"},
      {"06NoShape", entry(dtype + "," + offsets), "expected \"shape\", found none"},
      {"06NoOffsets", entry(dtype + "," + shape), "expected \"data_offsets\", found none"},
      {"06DtypeNumber", entry(R"("dtype":8,)" + shape + "," + offsets), "\"dtype\" to be a string, found 8"},
      {"06ShapeNumber", entry(dtype + R"(,"shape":4,)" + offsets), "\"shape\" to be a list"},
      {"06NegativeExtent", entry(dtype + R"(,"shape":[-4],)" + offsets),
       "non-negative integers below 2^63, found [-4]"},
      {"06FractionalExtent", entry(dtype + R"(,"shape":[4.0],)" + offsets), "below 2^63, found [4.0]"},
      {"06StringExtent", entry(dtype + R"(,"shape":["4"],)" + offsets), "below 2^63, found [\"4\"]"},
      {"06ExtentOf64Bits", entry(dtype + R"(,"shape":[9223372036854775808],)" + offsets),
       "found [9223372036854775808]"},
      {"06StringOffset", entry(dtype + "," + shape + R"(,"data_offsets":["0",4])"), "\"data_offsets\" to be a list"},
      {"06OneOffset", entry(dtype + "," + shape + R"(,"data_offsets":[4])"), "exactly two integers, found 1"},
      {"06ThreeOffsets", entry(dtype + "," + shape + R"(,"data_offsets":[0,4,4])"), "exactly two integers, found 3"},
      {"07UnknownDtype", entry(R"("dtype":"F128",)" + shape + "," + offsets), "dtype that safetensors defines"},
      {"08MetadataNumber", file(R"({"__metadata__":{"format":1}})"), "entry \"format\" to be a string, found 1"},
      {"08MetadataNoObject", file(R"({"__metadata__":"pt"})"), "\"__metadata__\" to be an object"},
      {"09DuplicateName", file("{" + U8("t", "[4]", 0, 4) + "," + U8("t", "[4]", 0, 4) + "}", "aaaa"), "duplicate key"},
  };
}

// Items 10 to 21: where tensors lie, how large they are, names and nesting.
std::vector<Malformed> MalformedRanges() {
  const auto file = [](const std::string& header, const std::string& data = "") { return FileBytes(header, data); };
  const auto entry = [&](const std::string& members) { return file(R"({"t":{)" + members + "}}", "aaaa"); };
  const std::string dtype = R"("dtype":"U8")", offsets = R"("data_offsets":[0,4])";
  return {
      {"10BeginAfterEnd", file("{" + U8("t", "[4]", 4, 0) + "}", "aaaa"), "begins before it ends, found [4, 0]"},
      {"11Overlap", file("{" + U8("a", "[4]", 0, 4) + "," + U8("b", "[4]", 3, 7) + "}", "aaaabbb"), "an overlap at 3"},
      {"11SameRange", file("{" + U8("a", "[4]", 0, 4) + "," + U8("b", "[4]", 0, 4) + "}", "aaaa"), "an overlap at 0"},
      {"11Hole", file("{" + U8("a", "[4]", 0, 4) + "," + U8("b", "[4]", 5, 9) + "}", "aaaa bbbb"),
       "data from 4 on, where the tensor before ends, found a hole up to its begin at 5"},
      {"11HoleInFront", file("{" + U8("a", "[4]", 1, 5) + "}", " aaaa"), "found a hole up to its begin at 1"},
      {"12EndBeyondData", file("{" + U8("t", "[4]", 0, 4) + "}", "aaa"),
       "within the 3 bytes after the header, found an end"},
      {"13BytesLeft", file("{" + U8("t", "[4]", 0, 4) + "}", "aaaab"), "end with the last tensor"},
      {"14ElementsOverflow", file("{" + U8("t", "[4294967296,4294967296]", 0, 4) + "}", "aaaa"), "element count fits"},
      {"15BitsOverflow", file("{" + U8("t", "[4611686018427387904]", 0, 4) + "}", "aaaa"), "size in bits that fits"},
      {"16PartOfAByte", entry(R"("dtype":"F4","shape":[7],)" + offsets),
       "whole number of bytes, found 7 elements of F4"},
      {"17WrongLength", file("{" + U8("t", "[3]", 0, 4) + "}", "aaaa"), "3 bytes for [3] of U8, found 4 between"},
      {"18DataWithoutTensors", file("{}", "aaaa"), "the header names no tensor, found 4 bytes"},
      {"19NulInName", file("{" + U8("a\\u0000b", "[4]", 0, 4) + "}", "aaaa"), "name without NUL characters"},
      {"19LoneSurrogate", file("{" + U8("\\ud800", "[4]", 0, 4) + "}", "aaaa"),
       "surrogate U+D800..U+DBFF must be followed"},
      {"19LoneLowSurrogate", file("{" + U8("\\udc00", "[4]", 0, 4) + "}", "aaaa"),
       "surrogate U+DC00..U+DFFF must follow"},
      {"20NestedInShape", entry(dtype + R"(,"shape":[[4]],)" + offsets), "nested deeper than 3 levels"},
      {"20NestedWithoutEnd", file("{\"t\":" + std::string(1'000'000, '[')), "nested deeper than 3 levels"},
      {"21RankTooHigh", file("{" + U8("t", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 1) + "}", "a"),
       "16 dimensions, found 17"},
  };
}

std::vector<Malformed> MalformedFiles() {
  std::vector<Malformed> all = MalformedHeaders();
  for (Malformed& one : MalformedRanges()) all.push_back(std::move(one));
  return all;
}

class MalformedTest : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedTest, IsRefusedWithItsOwnMessage) {
  const TempDir dir;
  dir.Write("bad.safetensors", GetParam().bytes);
  const auto opened = OpenSafetensors(dir.Path("bad.safetensors"));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kInvalid);
  EXPECT_THAT(opened.error().message, HasSubstr(dir.Path("bad.safetensors")));
  EXPECT_THAT(opened.error().message, HasSubstr(GetParam().message));
  EXPECT_LT(opened.error().message.size(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(Safetensors, MalformedTest, testing::ValuesIn(MalformedFiles()),
                         [](const auto& info) { return info.param.item; });

// Two defects of different items share no message: what one test looks for, no other item's file produces.
TEST(Safetensors, MessagesTellItemsApart) {
  const std::vector<Malformed> files = MalformedFiles();
  const TempDir dir;
  for (const Malformed& file : files) {
    dir.Write("f", file.bytes);
    const std::string message = OpenSafetensors(dir.Path("f")).error().message;
    for (const Malformed& other : files) {
      if (std::string_view(file.item).substr(0, 2) == std::string_view(other.item).substr(0, 2)) continue;
      EXPECT_THAT(message, testing::Not(HasSubstr(other.message))) << file.item << " and " << other.item;
    }
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = TwoTensorFile("a", "b");
  const TempDir dir;
  for (size_t length = 0; length < whole.size(); ++length) {
    dir.Write("t.safetensors", whole.substr(0, length));
    EXPECT_FALSE(OpenSafetensors(dir.Path("t.safetensors")).ok()) << length;
  }
  dir.Write("t.safetensors", whole);
  EXPECT_TRUE(OpenSafetensors(dir.Path("t.safetensors")).ok());
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string header = R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                             R"("__metadata__":{"format":"pt","note":""},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"unknown":null}})";
  const auto parsed = ParseHeader(header, 8 + static_cast<int64_t>(header.size()) + 16, "f");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 2u);
  const TensorInfo& a = parsed->tensors[0];
  const TensorInfo& b = parsed->tensors[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_TRUE(a.shape.empty());
  EXPECT_EQ(a.offset, 8 + static_cast<int64_t>(header.size()));
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.offset, a.offset + 4);
  EXPECT_EQ(b.bytes, 12);
  ASSERT_EQ(parsed->metadata.size(), 2u);
  EXPECT_EQ(parsed->metadata[0], (std::pair<std::string, std::string>("format", "pt")));
}

TEST(Safetensors, AcceptsWhatTheReferenceParserAccepts) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"{}", ""},                                                            // no tensor
      {" \n\t{} \r\n ", ""},                                                 // white space around
      {R"({"__metadata__":{}})", ""},                                        // metadata alone
      {"{" + U8("", "[4]", 0, 4) + "}", "aaaa"},                             // an empty name
      {"{" + U8("\xe6\xb1\x89 \\ud83d\\ude00", "[4]", 0, 4) + "}", "aaaa"},  // beyond ASCII
      {"{" + U8("a", "[0]", 0, 0) + "," + U8("b", "[4]", 0, 4) + "," + U8("c", "[7,0]", 4, 4) + "}", "aaaa"},
      {"{" + U8("t", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]", 0, 4) + "}", "aaaa"},  // rank 16
  };
  for (const auto& [header, data] : files) {
    const int64_t bytes = 8 + static_cast<int64_t>(header.size() + data.size());
    const auto parsed = ParseHeader(header, bytes, "f");
    EXPECT_TRUE(parsed.ok()) << header << ": " << parsed.error().message;
  }
}

TEST(Safetensors, AnAbsentFileIsNotFound) {
  const TempDir dir;
  const auto opened = OpenSafetensors(dir.Path("none.safetensors"));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace trivet::checkpoint
