// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_parser.h"

#include <gtest/gtest.h>

#include "tests/text/render.h"
#include "text/jinja_filters.h"
#include "text/jinja_tests.h"

namespace trivet::text::jinja {
namespace {

bool Parses(std::string_view source) { return Parse(source, {&IsFilter, &IsTest}).ok(); }

TEST(JinjaParser, MakesStatements) {
  const auto body =
      Parse("a{{ 1 }}{% for x in y if z %}b{% else %}c{% endfor %}{% set n.a = 1 %}", {&IsFilter, &IsTest});
  ASSERT_TRUE(body.ok()) << body.error().message;
  ASSERT_EQ(body->size(), 4U);
  EXPECT_EQ((*body)[0]->kind, StmtKind::kData);
  EXPECT_EQ((*body)[1]->kind, StmtKind::kPrint);
  const Stmt& loop = *(*body)[2];
  EXPECT_EQ(loop.kind, StmtKind::kFor);
  EXPECT_EQ(loop.target.name, "x");
  EXPECT_NE(loop.test, nullptr);
  EXPECT_EQ(loop.body.size(), 1U);
  EXPECT_EQ(loop.other.size(), 1U);
  EXPECT_EQ((*body)[3]->target.what, Target::What::kAttribute);
}

TEST(JinjaParser, RefusesMalformedStatements) {
  for (const char* source :
       {"{% if %}{% endif %}", "{% if x %}", "{% endif %}", "{% for x y %}{% endfor %}", "{% for 1 in y %}{% endfor %}",
        "{% set true = 1 %}", "{% set a.b.c = 1 %}", "{% macro m(a, a) %}{% endmacro %}",
        "{% macro m(a=1, b) %}{% endmacro %}", "{% call 5 %}{% endcall %}", "{% nosuch %}", "{% %}", "{{ }}",
        "{% for loop in x %}{% endfor %}", "{% filter %}{% endfilter %}", "{% set a, b %}{% endset %}"}) {
    EXPECT_FALSE(Parses(source)) << source;
  }
}

TEST(JinjaParser, BreaksNeedALoop) {
  EXPECT_TRUE(Parses("{% for x in y %}{% if x %}{% break %}{% endif %}{% endfor %}"));
  EXPECT_FALSE(Parses("{% break %}"));
  EXPECT_FALSE(Parses("{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}"));
  EXPECT_FALSE(Parses("{% for x in y %}{% else %}{% continue %}{% endfor %}"));
}

TEST(JinjaParser, UnknownFiltersAreErrorsUnlessAnIfSkipsThem) {
  EXPECT_FALSE(Parses("{{ x|nosuch }}"));
  EXPECT_FALSE(Parses("{% for x in y %}{{ x is nosuch }}{% endfor %}"));
  EXPECT_FALSE(Parses("{% if x %}{% for x in y %}{{ x|nosuch }}{% endfor %}{% endif %}"));
  EXPECT_TRUE(Parses("{% if x %}{{ x|nosuch }}{% endif %}"));
  EXPECT_TRUE(Parses("{{ x if y else (x|nosuch) }}"));
  EXPECT_TRUE(Fails("{% if true %}{{ 1|nosuch }}{% endif %}"));
}

TEST(JinjaParser, NestingIsBounded) {
  std::string open, close;
  for (int i = 0; i < 5000; ++i) {
    open += "{% if x %}";
    close += "{% endif %}";
  }
  EXPECT_FALSE(Parses(open + close));
  EXPECT_FALSE(Parses("{% for " + std::string(5000, '(') + "a"));
}

}  // namespace
}  // namespace trivet::text::jinja
