// SPDX-License-Identifier: Apache-2.0
#include "base/str.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>
#include <map>
#include <string>

#include "tests/io/temp_dir.h"

namespace trivet {
namespace {

using testing::HasSubstr;

constexpr const char* kReplacement = "\xEF\xBF\xBD";

TEST(TextFile, ComesBackByteForByte) {
  const TempDir dir;
  const std::string text = std::string("a\0b\r\n\xff", 6) + std::string(200000, 'x');
  ASSERT_TRUE(WriteTextFile(dir.Path("f"), text).ok());
  const Result<std::string> read = ReadTextFile(dir.Path("f"), 1 << 20);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, text);
  EXPECT_EQ(dir.Count(), 1) << "the temporary file is gone";
  ASSERT_TRUE(WriteTextFile(dir.Path("f"), "").ok());
  EXPECT_EQ(*ReadTextFile(dir.Path("f"), 0), "") << "replaced whole";
}

TEST(TextFile, LimitsAreExact) {
  const TempDir dir;
  dir.Write("f", "12345");
  EXPECT_TRUE(ReadTextFile(dir.Path("f"), 5).ok());
  const Result<std::string> more = ReadTextFile(dir.Path("f"), 4);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, Code::kCapacity);
  EXPECT_FALSE(ReadTextFile("/dev/zero", 1000).ok()) << "a file without an end";
}

TEST(TextFile, FailuresNameThePath) {
  const TempDir dir;
  dir.Write("f", "");
  const std::pair<std::string, Code> cases[] = {
      {dir.Path("absent"), Code::kNotFound}, {dir.Path("f/g"), Code::kNotFound}, {dir.Path(), Code::kIo}};
  for (const auto& [path, code] : cases) {
    const Result<std::string> read = ReadTextFile(path, 10);
    ASSERT_FALSE(read.ok()) << path;
    EXPECT_EQ(read.error().code, code) << path;
    EXPECT_THAT(read.error().message, HasSubstr(path));
  }
  const Status written = WriteTextFile(dir.Path("no/such/folder"), "x");
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kIo);
  EXPECT_FALSE(WriteTextFile(dir.Path(), "x").ok()) << "a folder is in the way";
  EXPECT_EQ(WriteTextFile("/dev/full/x", "x").error().code, Code::kIo);
}

TEST(ParseInt, TakesTheWholeText) {
  const std::pair<const char*, int64_t> good[] = {{"0", 0},
                                                  {"-0", 0},
                                                  {"007", 7},
                                                  {"9223372036854775807", std::numeric_limits<int64_t>::max()},
                                                  {"-9223372036854775808", std::numeric_limits<int64_t>::min()}};
  for (const auto& [text, value] : good) EXPECT_EQ(*ParseInt(text, "--n"), value) << text;
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "9223372036854775808", "1,000", "one"}) {
    const Result<int64_t> parsed = ParseInt(text, "--n");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kUsage);
    EXPECT_THAT(parsed.error().message, HasSubstr("--n: expected an integer, found \"" + std::string(text) + "\""));
  }
}

TEST(ParseSize, TakesAWholeNumberAndAUnit) {
  for (const auto& [text, bytes] : std::map<std::string, int64_t>{{"0", 0},
                                                                  {"17", 17},
                                                                  {"17b", 17},
                                                                  {"64G", 64'000'000'000},
                                                                  {"64 GB", 64'000'000'000},
                                                                  {"2kb", 2000},
                                                                  {"2KiB", 2048},
                                                                  {"2mi", 2 << 20},
                                                                  {"7EiB", int64_t{7} << 60},
                                                                  {"9223372036854775807", INT64_MAX}}) {
    EXPECT_EQ(ParseSize(text), bytes) << text;
  }
  for (const char* text : {"", "G", "zzz", "-1", "1.5G", "1e30G", "5Q", "5 G x", "5bb", "5Gx", "5i", "8EiB", "+5", " 5",
                           "5 ", "5G ", "9223372036854775808", "99999999999G"}) {
    EXPECT_EQ(ParseSize(text), std::nullopt) << text;
  }
}

TEST(Split, GivesThePiecesBetween) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(Split("", ','), Pieces{});
  EXPECT_EQ(Split("a", ','), Pieces{"a"});
  EXPECT_EQ(Split("a,b", ','), (Pieces{"a", "b"}));
  EXPECT_EQ(Split(",", ','), (Pieces{"", ""}));
  EXPECT_EQ(Split("a,,b,", ','), (Pieces{"a", "", "b", ""}));
}

TEST(Quote, ShowsControlBytesAndCutsLongTexts) {
  EXPECT_EQ(Quote("plain é"), "plain é");
  EXPECT_EQ(Quote(std::string_view("a\0b\n\x1b[0m\x7f", 9)), "a\\x00b\\x0a\\x1b[0m\\x7f");
  EXPECT_EQ(Quote("\xff"), kReplacement);
  EXPECT_EQ(Quote(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(Quote(std::string(201, 'x')), std::string(200, 'x') + "...");
  EXPECT_EQ(Quote("\u65e5\u672c\u8a9e", 8), "\u65e5\u672c...");
  EXPECT_EQ(Quote("\u65e5\u672c\u8a9e", 9), "\u65e5\u672c\u8a9e");
  std::string accents;
  while (accents.size() < 300) accents += "é";
  EXPECT_TRUE(IsUtf8(Quote("x" + accents))) << "a character cut in two";
}

TEST(HumanBytes, UsesPowersOfAThousand) {
  const std::pair<double, const char*> cases[] = {
      {0, "0 B"},         {999, "999 B"},       {1000, "1.0 kB"},  {27100000, "27.1 MB"}, {1.5e9, "1.5 GB"},
      {999950, "1.0 MB"}, {999949, "999.9 kB"}, {999.5, "1.0 kB"}, {2e15, "2000.0 TB"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(HumanBytes(bytes), text) << bytes;
}

struct Utf8Case {
  std::string text;
  std::string repaired;  // equal to text when it is valid
};

TEST(Utf8, FollowsTheStandardsTable) {
  const std::string r = kReplacement;
  const Utf8Case cases[] = {
      {"", ""},
      {std::string("a\0b", 3), std::string("a\0b", 3)},
      {"\xC2\x80\xDF\xBF", "\xC2\x80\xDF\xBF"},
      {"\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF", "\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF"},
      {"\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"},
      {"\x80", r},
      {"\xC0\xAF", r + r},  // overlong
      {"\xC1\xBF", r + r},
      {"\xE0\x9F\xBF", r + r + r},          // overlong
      {"\xED\xA0\x80", r + r + r},          // surrogate
      {"\xF0\x8F\xBF\xBF", r + r + r + r},  // overlong
      {"\xF4\x90\x80\x80", r + r + r + r},  // beyond U+10FFFF
      {"\xF5\x80", r + r},
      {"\xFE\xFF", r + r},
      {"\xE2\x82", r},  // cut short: one maximal subpart
      {"\xE2\x82x", r + "x"},
      {"\xF0\x90\x80", r},
      {"\xF0\x90\x80\xC3\xA9", r + "\xC3\xA9"},
      {"\xC3", r},
      {"a\xF1\x80\x80\xE1\x80\xC2z", "a" + r + r + r + "z"},  // Unicode, table 3-8
  };
  for (const Utf8Case& test : cases) {
    EXPECT_EQ(RepairUtf8(test.text), test.repaired) << Quote(test.text);
    EXPECT_EQ(IsUtf8(test.text), test.text == test.repaired) << Quote(test.text);
    EXPECT_TRUE(IsUtf8(RepairUtf8(test.text)));
  }
}

}  // namespace
}  // namespace trivet
