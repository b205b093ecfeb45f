// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

using ::testing::HasSubstr;

TEST(JinjaOps, IntegersAsInPython) {
  EXPECT_EQ(Print("[7 // 2, -7 // 2, 7 // -2, -7 % 3, 7 % -3]"), "[3, -4, -4, 2, -2]");
  EXPECT_EQ(Print("[1 / 2, 4 / 2, 2 ** 10, 2 ** -1, 0 ** 0]"), "[0.5, 2.0, 1024, 0.5, 1]");
  EXPECT_EQ(Print("true + true"), "2");
  EXPECT_EQ(Print("9223372036854775807"), "9223372036854775807");
  for (const char* source : {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}", "{{ 2 ** 63 }}",
                             "{{ 3037000500 * 3037000500 }}", "{{ (-9223372036854775807 - 1) // -1 }}",
                             "{{ -(-9223372036854775807 - 1) }}"}) {
    EXPECT_THAT(Render(source), HasSubstr("64 bits")) << source;
  }
  EXPECT_EQ(Print("(-9223372036854775807 - 1) % -1"), "0");
  EXPECT_TRUE(Fails("{{ 1 // 0 }}"));
  EXPECT_TRUE(Fails("{{ 1 % 0 }}"));
}

TEST(JinjaOps, FloatsAsInPython) {
  EXPECT_EQ(Print("[7.5 // 2, -7.5 // 2, -7.5 % 2, 5 % -3.0]"), "[3.0, -4.0, 0.5, -1.0]");
  EXPECT_EQ(Print("1e308 * 10"), "inf");
  EXPECT_TRUE(Fails("{{ 1 / 0.0 }}"));
  EXPECT_TRUE(Fails("{{ 10.0 ** 400 }}"));
  EXPECT_TRUE(Fails("{{ (-8) ** 0.5 }}"));
}

TEST(JinjaOps, StringsAndLists) {
  EXPECT_EQ(Print("'ab' + 'c'"), "abc");
  EXPECT_EQ(Print("'ab' * 2 ~ 3 * 'x'"), "ababxxx");
  EXPECT_EQ(Print("[1] + [2] + [0] * 2"), "[1, 2, 0, 0]");
  EXPECT_EQ(Print("1 ~ none ~ [1.0]"), "1None[1.0]");
  EXPECT_TRUE(Fails("{{ 'a' + 1 }}"));
  EXPECT_TRUE(Fails("{{ [1] + (2,) }}"));
  EXPECT_TRUE(Fails("{{ missing + 1 }}"));
  EXPECT_THAT(Render("{{ 'abc' * 1000000000 }}"), HasSubstr("repeat"));
  EXPECT_THAT(Render("{{ [1] * 1000000000 }}"), HasSubstr("repeat"));
}

TEST(JinjaOps, Membership) {
  EXPECT_EQ(Print("['b' in 'abc', '' in '', 1.0 in [1], 'a' in {'a': 1}, 2 in range(3), 1 in missing]"),
            "[True, True, True, True, True, False]");
  EXPECT_TRUE(Fails("{{ 1 in 'abc' }}"));
  EXPECT_TRUE(Fails("{{ 1 in 5 }}"));
  EXPECT_TRUE(Fails("{{ [] in {} }}"));
}

TEST(JinjaOps, Slices) {
  EXPECT_EQ(Print("[1, 2, 3, 4][-3:-1]"), "[2, 3]");
  EXPECT_EQ(Print("[1, 2, 3][::-1]"), "[3, 2, 1]");
  EXPECT_EQ(Print("(1, 2, 3)[5:]"), "()");
  EXPECT_EQ(Print("'h\u00e9\u4f60x'[1:3]"), "\u00e9\u4f60");
  EXPECT_EQ(Print("'h\u00e9\u4f60x'[::-1]"), "x\u4f60\u00e9h");
  EXPECT_EQ(Print("range(10)[2:9:3]"), "range(2, 9, 3)");
  EXPECT_EQ(Print("[1, 2][-9223372036854775807:9223372036854775807:9223372036854775807]"), "[1]");
  EXPECT_TRUE(Fails("{{ [1][::0] }}"));
  EXPECT_TRUE(Fails("{{ [1]['a':] }}"));
  EXPECT_TRUE(Fails("{{ missing[1:] }}"));
}

TEST(JinjaOps, Ranges) {
  EXPECT_EQ(Print("range(5, 0, -2)|list"), "[5, 3, 1]");
  EXPECT_EQ(Print("range(3, 1)|list"), "[]");
  EXPECT_EQ(Print("range(-9223372036854775807, 9223372036854775807, 4611686018427387904)|length"), "4");
  EXPECT_TRUE(Fails("{{ range(0, 1, 0) }}"));
  EXPECT_TRUE(Fails("{{ range(100001) }}"));
  EXPECT_TRUE(Fails("{{ range(-9223372036854775807, 9223372036854775807) }}"));
}

TEST(JinjaOps, SortingIsStable) {
  EXPECT_EQ(Print("[[2, 'a'], [1, 'b'], [2, 'c'], [1, 'd']]|sort(attribute='0')|map('last')|join"), "bdac");
  EXPECT_EQ(Print("[[2, 'a'], [1, 'b'], [2, 'c'], [1, 'd']]|sort(attribute='0', reverse=true)|map('last')|join"),
            "acbd");
  EXPECT_TRUE(Fails("{{ [1, 'a']|sort }}"));
}

}  // namespace
}  // namespace trivet::text
