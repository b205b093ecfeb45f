// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::text {
namespace {

using testing::HasSubstr;

Result<Normalizer> Read(std::string_view text) { return Normalizer::FromJson(ParseJson(text, "test").value(), "file"); }

std::string Apply(std::string_view json, std::string_view text) {
  const auto normalizer = Read(json);
  EXPECT_TRUE(normalizer.ok()) << json;
  return normalizer.ok() ? normalizer->Apply(text).value() : "";
}

TEST(Normalizer, NullChangesNothing) { EXPECT_EQ(Apply("null", " e\u0301 "), " e\u0301 "); }

TEST(Normalizer, EachTypeDoesItsOwn) {
  EXPECT_EQ(Apply(R"({"type": "NFC"})", "e\u0301"), "é");
  EXPECT_EQ(Apply(R"({"type": "NFD"})", "é"), "e\u0301");
  EXPECT_EQ(Apply(R"({"type": "NFKC"})", "ﬁ"), "fi");
  EXPECT_EQ(Apply(R"({"type": "NFKD"})", "é①"), "e\u03011");
  EXPECT_EQ(Apply(R"({"type": "Lowercase"})", "ÀB"), "àb");
  EXPECT_EQ(Apply(R"({"type": "Strip", "strip_left": true, "strip_right": false})", " \u3000a "), "a ");
  EXPECT_EQ(Apply(R"({"type": "Strip", "strip_left": true, "strip_right": true})", " \u00a0"), "");
  EXPECT_EQ(Apply(R"({"type": "StripAccents"})", "e\u0301é"), "eé");
  EXPECT_EQ(Apply(R"({"type": "Replace", "pattern": {"String": "."}, "content": "!"})", "a.b."), "a!b!");
  EXPECT_EQ(Apply(R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": "$0"})", "a  b"), "a$0b");
  EXPECT_EQ(Apply(R"({"type": "Prepend", "prepend": "▁"})", "a"), "▁a");
  EXPECT_EQ(Apply(R"({"type": "Prepend", "prepend": "▁"})", ""), "");
  EXPECT_EQ(Apply(R"({"type": "ByteLevel"})", "é a"), "Ã©Ġa");
}

TEST(Normalizer, SequencesRunInOrder) {
  EXPECT_EQ(Apply(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": " "},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})",
                  "a b"),
            "▁a▁b");
}

TEST(Normalizer, UnknownTypesAreRefusedByName) {
  const auto normalizer = Read(R"({"type": "Precompiled"})");
  ASSERT_FALSE(normalizer.ok());
  EXPECT_EQ(normalizer.error().code, Code::kUnsupported);
  EXPECT_THAT(normalizer.error().message, HasSubstr("file: normalizer: "));
  EXPECT_THAT(normalizer.error().message, HasSubstr("Precompiled"));
}

TEST(Normalizer, MalformedMembersAreErrors) {
  for (const char* text : {R"({"type": "Replace"})", R"({"type": "Prepend"})", R"({"type": "Strip", "strip_left": 1})",
                           R"({"type": "Replace", "pattern": {"String": "a"}})"}) {
    const auto normalizer = Read(text);
    ASSERT_FALSE(normalizer.ok()) << text;
    EXPECT_EQ(normalizer.error().code, Code::kInvalid);
  }
}

}  // namespace
}  // namespace trivet::text
