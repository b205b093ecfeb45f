// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_tests.h"

#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

TEST(JinjaTests, Types) {
  const char* types[] = {"defined",  "none",   "string",  "mapping", "sequence",
                         "iterable", "number", "integer", "float",   "boolean"};
  const std::pair<const char*, const char*> cases[] = {
      {"missing", "0000110000"}, {"none", "1100000000"},     {"'a'", "1010110000"},       {"{}", "1001110000"},
      {"[]", "1000110000"},      {"()", "1000110000"},       {"1", "1000001100"},         {"1.5", "1000001010"},
      {"true", "1000001001"},    {"range(2)", "1000110000"}, {"{}.items()", "1000010000"}};
  for (const auto& [value, expected] : cases) {
    std::string found;
    for (const char* type : types) found += Print(std::string("1 if ") + value + " is " + type + " else 0");
    EXPECT_EQ(found, expected) << value;
  }
}

TEST(JinjaTests, Values) {
  EXPECT_EQ(Print("[true is true, 1 is true, false is false, 3 is odd, 4 is even, 6 is divisibleby(4)]"),
            "[True, False, True, True, True, False]");
  EXPECT_EQ(Print("['a' is lower, 'A' is upper, range is callable, 'upper' is filter, 'odd' is test]"),
            "[True, True, True, True, True]");
  EXPECT_EQ(Print("[none is sameas none, 1 is sameas true, [] is sameas []]"), "[True, False, False]");
  EXPECT_EQ(Print("['<'|e is escaped, 'a' is escaped]"), "[True, False]");
}

TEST(JinjaTests, Comparisons) {
  EXPECT_EQ(
      Print("[1 is eq 1, 1 is ne 1, 1 is lt 2, 1 is le 1, 2 is gt 1, 1 is ge 2, 1 is in [1], 'x' is equalto 'x']"),
      "[True, False, True, True, True, False, True, True]");
  EXPECT_EQ(Print("[1, 2, 3]|select('>=', 2)|list"), "[2, 3]");
  EXPECT_TRUE(Fails("{{ 1 is lt 'a' }}"));
  EXPECT_TRUE(Fails("{{ 'a' is odd }}"));
  EXPECT_TRUE(Fails("{{ 1 is eq }}"));
}

}  // namespace
}  // namespace trivet::text
