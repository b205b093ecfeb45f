// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <gtest/gtest.h>

#include "base/str.h"

namespace trivet::text {
namespace {

std::string Utf8(char32_t value) {
  std::string text;
  AppendUtf8(value, &text);
  return text;
}

TEST(Unicode, CodePointsSurviveTheRoundTrip) {
  for (const char32_t value : {0x0, 0x41, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff}) {
    const std::string text = Utf8(value);
    EXPECT_TRUE(IsUtf8(text));
    EXPECT_EQ(CodePointAt(text, 0).value, value);
    EXPECT_EQ(CodePointAt(text, 0).length, text.size());
    EXPECT_EQ(CodePointBefore("é" + text, text.size() + 2).value, value);
    EXPECT_EQ(OnlyCodePoint(text), value);
  }
  EXPECT_FALSE(OnlyCodePoint("").has_value());
  EXPECT_FALSE(OnlyCodePoint("ab").has_value());
}

TEST(Unicode, ClassesFollowTheProperties) {
  for (const char32_t value : {0x9, 0x20, 0x85, 0xa0, 0x2028, 0x3000}) EXPECT_TRUE(IsWhiteSpace(value));
  for (const char32_t value : {0x41, 0x180e, 0x200b, 0xfeff}) EXPECT_FALSE(IsWhiteSpace(value));
  EXPECT_TRUE(IsMark(0x301));
  EXPECT_TRUE(IsMark(0x903));
  EXPECT_TRUE(IsMark(0x20dd));
  EXPECT_FALSE(IsMark('a'));
}

TEST(Unicode, LowercaseIsTheFullMapping) {
  std::string text;
  for (const char32_t value : {U'A', U'\u0130', U'\u03a3', U'1'}) AppendLowercase(value, &text);
  EXPECT_EQ(text, "ai\u0307\u03c31");
}

TEST(Unicode, NormalFormsComposeAndDecompose) {
  EXPECT_EQ(Normalize("e\u0301", NormalForm::kNfc), "é");
  EXPECT_EQ(Normalize("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(Normalize("ﬁ", NormalForm::kNfc), "ﬁ");
  EXPECT_EQ(Normalize("ﬁ\u00a0", NormalForm::kNfkc), "fi ");
  EXPECT_EQ(Normalize("가", NormalForm::kNfd), "\u1100\u1161");
  EXPECT_EQ(Normalize("\u1100\u1161\u11a8", NormalForm::kNfc), "각");
  EXPECT_EQ(Normalize("a\u0301\u0323", NormalForm::kNfd), "a\u0323\u0301");  // canonical order
  EXPECT_EQ(Normalize("\u0958", NormalForm::kNfc), "\u0915\u093c");          // a composition exclusion
  EXPECT_EQ(Normalize(std::string_view("a\0\u0301", 4), NormalForm::kNfc), std::string_view("a\0\u0301", 4));
}

TEST(Unicode, LongRunsOfMarksAreOrderedQuickly) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string ordered = Normalize(text, NormalForm::kNfd);
  EXPECT_EQ(ordered.size(), text.size());
  EXPECT_TRUE(ordered.starts_with("\u0323\u0323"));
  EXPECT_TRUE(ordered.ends_with("\u0301\u0301"));
}

TEST(Unicode, ByteLevelIsABijection) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  std::string mapped;
  AppendByteLevel(all, &mapped);
  std::string back;
  for (size_t at = 0; at < mapped.size();) {
    const CodePoint point = CodePointAt(mapped, at);
    at += point.length;
    ASSERT_TRUE(ByteLevelByte(point.value).has_value());
    back.push_back(static_cast<char>(*ByteLevelByte(point.value)));
  }
  EXPECT_EQ(back, all);
  std::string some;
  AppendByteLevel(" \nA", &some);
  EXPECT_EQ(some, "ĠĊA");
  for (const char32_t value : {0x20, 0x7f, 0xad, 0x144, 0x2581}) EXPECT_FALSE(ByteLevelByte(value).has_value());
}

}  // namespace
}  // namespace trivet::text
