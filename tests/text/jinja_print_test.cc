// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_print.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/text/render.h"

namespace trivet::text::jinja {
namespace {

TEST(JinjaPrint, FloatsAsPythonWritesThem) {
  EXPECT_EQ(FloatText(1), "1.0");
  EXPECT_EQ(FloatText(-0.0), "-0.0");
  EXPECT_EQ(FloatText(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(FloatText(1e-5), "1e-05");
  EXPECT_EQ(FloatText(0.0001), "0.0001");
  EXPECT_EQ(FloatText(1e15), "1000000000000000.0");
  EXPECT_EQ(FloatText(1e16), "1e+16");
  EXPECT_EQ(FloatText(1.5e300), "1.5e+300");
  EXPECT_EQ(FloatText(5e-324), "5e-324");
  EXPECT_EQ(FloatText(123456789.125), "123456789.125");
  EXPECT_EQ(FloatText(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FloatText(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(JinjaPrint, StringsAsPythonQuotesThem) {
  EXPECT_EQ(QuoteText("a"), "'a'");
  EXPECT_EQ(QuoteText("it's"), "\"it's\"");
  EXPECT_EQ(QuoteText("it's \"x\""), "'it\\'s \"x\"'");
  EXPECT_EQ(QuoteText("a\\\n\t\x01"), "'a\\\\\\n\\t\\x01'");
  EXPECT_EQ(QuoteText("h\u00e9\u200b\u00a0\U0001F600"), "'h\u00e9\\u200b\\xa0\U0001F600'");
}

TEST(JinjaPrint, Containers) {
  EXPECT_EQ(Print("[1, 'a', none, true, 1.0, (1,), {'k': []}]"), "[1, 'a', None, True, 1.0, (1,), {'k': []}]");
  EXPECT_EQ(Print("{'a': 1}.items()"), "dict_items([('a', 1)])");
  EXPECT_EQ(Print("range(1, 9, 2)"), "range(1, 9, 2)");
  EXPECT_EQ(Print("namespace(a=1)"), "<Namespace {'a': 1}>");
}

TEST(JinjaPrint, Json) {
  EXPECT_EQ(Print("{'a': [1, 2.0, none, true], 'b': {}}|tojson"), R"({"a": [1, 2.0, null, true], "b": {}})");
  EXPECT_EQ(Print("{'b': [1, []], 'a': 2}|tojson(indent=2)"), "{\n  \"b\": [\n    1,\n    []\n  ],\n  \"a\": 2\n}");
  EXPECT_EQ(Print("{'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':'))"), R"({"a":2,"b":1})");
  EXPECT_EQ(Print(R"('<é"\\\n\x01' ~ '>'|tojson)"), "<\u00e9\"\\\n\x01\">\"");
  EXPECT_EQ(Print(R"(('<é"\\\n\x01')|tojson)"), "\"<\u00e9\\\"\\\\\\n\\u0001\"");
  EXPECT_EQ(Print("'\u00e9\U0001F600'|tojson(ensure_ascii=true)"), R"("\u00e9\ud83d\ude00")");
  EXPECT_EQ(Print("{1: 2, none: 3, true: 4}|tojson"), R"({"1": 4, "null": 3})");
  EXPECT_TRUE(Fails("{{ missing|tojson }}"));
  EXPECT_TRUE(Fails("{{ range(3)|tojson }}"));
  EXPECT_TRUE(Fails("{{ {(1, 2): 3}|tojson }}"));
}

}  // namespace
}  // namespace trivet::text::jinja
