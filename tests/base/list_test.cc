// SPDX-License-Identifier: Apache-2.0
#include "base/list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet {
namespace {

using testing::HasSubstr;

TEST(ParseList, TakesPiecesBetweenCommas) {
  EXPECT_EQ(ParseList("1", "list").value(), std::vector<std::string>{"1"});
  EXPECT_EQ(ParseList("a,b c,d", "list").value(), (std::vector<std::string>{"a", "b c", "d"}));
}

TEST(ParseList, NoPieceIsEmpty) {
  for (const char* text : {"", ",", "1,,7", ",1", "1,"}) {
    const auto pieces = ParseList(text, "--layers");
    ASSERT_FALSE(pieces.ok()) << text;
    EXPECT_EQ(pieces.error().code, Code::kUsage);
    EXPECT_THAT(pieces.error().message, testing::AllOf(HasSubstr("--layers"), HasSubstr(std::string("\"") + text)));
  }
}

TEST(ParseLists, AreOneList) {
  EXPECT_EQ(ParseLists({"1,2", "3"}, "list").value(), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_TRUE(ParseLists({}, "list").value().empty());
  EXPECT_FALSE(ParseLists({"1", "2,"}, "list").ok());
}

}  // namespace
}  // namespace trivet
