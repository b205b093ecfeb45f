// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

using ::testing::HasSubstr;

TEST(JinjaFunctions, Range) {
  EXPECT_EQ(Print("range(3)|list + range(1, 3)|list"), "[0, 1, 2, 1, 2]");
  EXPECT_TRUE(Fails("{{ range() }}"));
  EXPECT_TRUE(Fails("{{ range('a') }}"));
}

TEST(JinjaFunctions, DictAndNamespace) {
  EXPECT_EQ(Print("dict({'a': 1}, b=2)"), "{'a': 1, 'b': 2}");
  EXPECT_EQ(Print("dict([['a', 1], ('b', 2)])"), "{'a': 1, 'b': 2}");
  EXPECT_EQ(Print("namespace({'a': 1}, b=2).b"), "2");
  EXPECT_TRUE(Fails("{{ dict([1]) }}"));
  EXPECT_TRUE(Fails("{{ namespace({1: 2}) }}"));
}

TEST(JinjaFunctions, CyclerAndJoiner) {
  EXPECT_EQ(Render("{% set j = joiner('|') %}{% for x in [1, 2, 3] %}{{ j() }}{{ x }}{% endfor %}"), "1|2|3");
  EXPECT_TRUE(Fails("{{ cycler() }}"));
}

TEST(JinjaFunctions, RaiseException) {
  EXPECT_EQ(Render("{{ raise_exception('no ' ~ 5) }}"), "error: no 5");
  EXPECT_THAT(Render("{{ raise_exception() }}"), HasSubstr("line 1"));
}

}  // namespace
}  // namespace trivet::text
