// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/render.h"
#include "text/jinja_filters.h"

namespace trivet::text {
namespace {

using ::testing::HasSubstr;

constexpr char kUsers[] =
    R"({"users":[{"name":"bob","age":30},{"name":"Al","age":25},{"name":"cy","age":30,"x":{"v":1}}]})";

TEST(JinjaSequenceFilters, MapAndSelect) {
  EXPECT_EQ(Print("users|map(attribute='name')|join(', ')", kUsers), "bob, Al, cy");
  EXPECT_EQ(Print("users|map(attribute='x.v', default=0)|list", kUsers), "[0, 0, 1]");
  EXPECT_EQ(Print("users|selectattr('age', 'eq', 30)|map(attribute='name')|list", kUsers), "['bob', 'cy']");
  EXPECT_EQ(Print("users|rejectattr('x')|map(attribute='name')|list", kUsers), "['bob', 'Al']");
  EXPECT_EQ(Print("[0, 1, 2]|select|list + [1, 2]|reject('odd')|list + ['a']|map('upper')|list"), "[1, 2, 2, 'A']");
  EXPECT_EQ(Print("missing|map('upper')|list"), "[]");
  EXPECT_TRUE(Fails("{{ users|map|list }}", kUsers));
  EXPECT_TRUE(Fails("{{ users|selectattr|list }}", kUsers));
}

TEST(JinjaSequenceFilters, IteratorsCanBeWalkedOnce) {
  EXPECT_EQ(Render("{% set g = [1, 2]|map('string') %}{{ g|list }}{{ g|list }}"), "['1', '2'][]");
  EXPECT_EQ(Render("{% set g = [1, 2]|select %}{{ g|first }}{{ g|first }}"), "12");
  EXPECT_TRUE(Fails("{{ ([1]|select)|length }}"));
}

TEST(JinjaSequenceFilters, Sort) {
  EXPECT_EQ(Print("['b', 'A', 'c']|sort ~ ['b', 'A']|sort(case_sensitive=true) ~ [1, 3, 2]|sort(reverse=true)"),
            "['A', 'b', 'c']['A', 'b'][3, 2, 1]");
  EXPECT_EQ(Print("users|sort(attribute='age,name')|map(attribute='name')|join", kUsers), "Albobcy");
  EXPECT_EQ(Print("{'b': 1, 'A': 2}|dictsort ~ {'b': 1, 'A': 2}|dictsort(by='value', reverse=true)"),
            "[('A', 2), ('b', 1)][('A', 2), ('b', 1)]");
  EXPECT_EQ(Print("['a', 'A', 'b']|unique|list"), "['a', 'b']");
}

TEST(JinjaSequenceFilters, Aggregates) {
  EXPECT_EQ(Print("[[1, 2]|sum, [[1], [2]]|sum(start=[]), users|sum(attribute='age')]", kUsers), "[3, [1, 2], 85]");
  EXPECT_EQ(Print("[[3, 1]|min, [3, 1]|max, ['b', 'A']|min, []|max is defined]"), "[1, 3, 'A', False]");
  EXPECT_EQ(Print("[[1, 2]|first, [1, 2]|last, 'abc'|first, {'a': 1}|first, []|first is defined]"),
            "[1, 2, 'a', 'a', False]");
  EXPECT_EQ(Print("['a', 1, none]|join('-') ~ 'abc'|reverse ~ [1, 2]|reverse|list"), "a-1-Nonecba[2, 1]");
}

TEST(JinjaSequenceFilters, Groups) {
  EXPECT_EQ(Print("[1, 2, 3]|batch(2, 0)|list ~ [1, 2, 3]|slice(2)|list"), "[[1, 2], [3, 0]][[1, 2], [3]]");
  EXPECT_EQ(Render("{% for age, us in users|groupby('age') %}{{ age }}:{{ us|length }} {% endfor %}", kUsers),
            "25:1 30:2 ");
  EXPECT_EQ(Print("(users|groupby('age')|first).grouper", kUsers), "25");
  EXPECT_EQ(Print("{'a': 1}|items|list"), "[('a', 1)]");
  EXPECT_TRUE(Fails("{{ 5|items }}"));
}

TEST(JinjaSequenceFilters, FiltersOfFiltersAreBounded) {
  std::string nested = "{{ 'a'|map(";
  for (int i = 0; i < 5000; ++i) nested += "'map', ";
  EXPECT_THAT(Render(nested + "'upper')|list }}"), HasSubstr("levels"));
}

}  // namespace
}  // namespace trivet::text
