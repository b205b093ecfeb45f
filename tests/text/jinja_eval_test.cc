// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/render.h"

namespace trivet::text {
namespace {

using ::testing::HasSubstr;

TEST(JinjaEval, LoopVariables) {
  EXPECT_EQ(
      Render(
          "{% for x in [7, 8, 9] %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }};{% endfor %}"),
      "12TrueFalse;21FalseFalse;30FalseTrue;");
  EXPECT_EQ(Render("{% for x in [7, 8] %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}"), "<7>8 7<8> ");
  EXPECT_EQ(Render("{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}"),
            "TrueaFalsebTruea");
}

TEST(JinjaEval, LoopTestsSeeWhatTheBodyDid) {
  EXPECT_EQ(Render("{% set ns = namespace(stop=false) %}{% for x in [1, 2, 3] if not ns.stop %}{{ x }}"
                   "{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}"),
            "12");
  EXPECT_EQ(Render("{% for x in range(6) if x is odd %}{{ loop.index }}/{{ loop.length }}={{ x }} {% endfor %}"),
            "1/3=1 2/3=3 3/3=5 ");
}

TEST(JinjaEval, LoopsUnpackBreakAndFallBack) {
  EXPECT_EQ(Render("{% for k, (a, b) in [(1, (2, 3))] %}{{ k }}{{ a }}{{ b }}{% endfor %}"), "123");
  EXPECT_EQ(Render("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}"), "13");
  EXPECT_EQ(Render("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}"), "1");
  EXPECT_EQ(Render("{% for x in [] %}a{% else %}b{% endfor %}"), "b");
  EXPECT_TRUE(Fails("{% for a, b in [1] %}{% endfor %}"));
  EXPECT_TRUE(Fails("{% for x in 5 %}{% endfor %}"));
}

TEST(JinjaEval, AssignmentsStayInTheirLoop) {
  EXPECT_EQ(Render("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}"), "15151");
  EXPECT_EQ(Render("{% if true %}{% set x = 1 %}{% endif %}{{ x }}"), "1");
  EXPECT_EQ(Render("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"),
            "3");
  EXPECT_TRUE(Fails("{% set x = {} %}{% set x.a = 1 %}"));
}

TEST(JinjaEval, Blocks) {
  EXPECT_EQ(Render("{% set x | upper %}a{{ 1 }}{% endset %}{{ x }}"), "A1");
  EXPECT_EQ(Render("{% filter upper|replace('A', 'b') %}a{% set q = 1 %}{% endfilter %}{{ q }}"), "b");
  EXPECT_EQ(Render("{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q }}"), "a");
}

TEST(JinjaEval, Macros) {
  EXPECT_EQ(Render("{% macro m(a, b=a) %}{{ a }}{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3) }}"),
            "11;12;3;");
  EXPECT_EQ(Render("{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}"), "(1,){'x': 2}");
  EXPECT_EQ(Render("{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}"), "<1>");
  EXPECT_EQ(Render("{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}"), "5");
  EXPECT_TRUE(Fails("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"));
  EXPECT_TRUE(Fails("{% macro m(a) %}{% endmacro %}{{ m(z=2) }}"));
}

TEST(JinjaEval, MacrosOutliveTheScopeThatDefinesThem) {
  EXPECT_EQ(Render("{% set ns = namespace() %}{% for x in [1, 2] %}{% set y = x %}{% macro m() %}{{ y }}{% endmacro %}"
                   "{% set ns.m = m %}{% endfor %}{{ ns.m() }}"),
            "2");
}

TEST(JinjaEval, Limits) {
  EXPECT_THAT(Render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("levels of calls"));
  EXPECT_THAT(Render("{% for a in range(100000) %}{% set x = range(100000)|list %}{% endfor %}"), HasSubstr("steps"));
  EXPECT_THAT(Render("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("nested"));
  EXPECT_THAT(
      Render("{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"),
      HasSubstr("bytes"));
  EXPECT_THAT(
      Render("{% set ns = namespace(x='abcdefgh') %}{% for i in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
      HasSubstr("bytes"));
  EXPECT_TRUE(Fails("{% for i in range(100000) %}{{ 'x' * 1000000 }}{% endfor %}"));
}

TEST(JinjaEval, NamespacesThatContainThemselvesPrint) {
  EXPECT_THAT(Render("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"), HasSubstr("..."));
}

}  // namespace
}  // namespace trivet::text
