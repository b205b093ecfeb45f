// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_format_spec.h"

#include <gtest/gtest.h>

namespace trivet::text::jinja {
namespace {

std::string Number(const Value& value, std::string_view spec) {
  const auto parsed = ParseFormatSpec(spec);
  if (!parsed.ok()) return "bad spec";
  const auto text = FormatNumber(value, *parsed);
  return text.ok() ? *text : "error";
}

std::string Text(std::string_view value, std::string_view spec) {
  const auto parsed = ParseFormatSpec(spec);
  if (!parsed.ok()) return "bad spec";
  const auto text = FormatText(value, *parsed);
  return text.ok() ? *text : "error";
}

TEST(JinjaFormatSpec, Integers) {
  EXPECT_EQ(Number(Value::Int(42), "5"), "   42");
  EXPECT_EQ(Number(Value::Int(42), "<5d"), "42   ");
  EXPECT_EQ(Number(Value::Int(-42), "06"), "-00042");
  EXPECT_EQ(Number(Value::Int(1234567), ","), "1,234,567");
  EXPECT_EQ(Number(Value::Int(255), "#x"), "0xff");
  EXPECT_EQ(Number(Value::Int(5), "b"), "101");
  EXPECT_EQ(Number(Value::Int(INT64_MIN), "d"), "-9223372036854775808");
  EXPECT_EQ(Number(Value::Int(5), "s"), "error");
  EXPECT_EQ(Number(Value::Int(0xd800), "c"), "error");
}

TEST(JinjaFormatSpec, Floats) {
  EXPECT_EQ(Number(Value::Float(3.14159), ".2f"), "3.14");
  EXPECT_EQ(Number(Value::Float(-3.14159), "010.3f"), "-00003.142");
  EXPECT_EQ(Number(Value::Float(12345.678), "e"), "1.234568e+04");
  EXPECT_EQ(Number(Value::Float(1e-5), "g"), "1e-05");
  EXPECT_EQ(Number(Value::Float(0.123), ".1%"), "12.3%");
  EXPECT_EQ(Number(Value::Float(1234.5), ".3"), "1.23e+03");
  EXPECT_EQ(Number(Value::Float(3), ".3"), "3.0");
  EXPECT_EQ(Number(Value::Float(3), ".1"), "3e+00");
  EXPECT_EQ(Number(Value::Float(3), ""), "3.0");
  EXPECT_EQ(Number(Value::Float(1.5), "d"), "error");
}

TEST(JinjaFormatSpec, Texts) {
  EXPECT_EQ(Text("ab", "5"), "ab   ");
  EXPECT_EQ(Text("ab", "\u00e9^5"), "\u00e9ab\u00e9\u00e9");
  EXPECT_EQ(Text("abc", ".2"), "ab");
  EXPECT_EQ(Text("ab", "05"), "ab000");
  EXPECT_EQ(Text("ab", "=5"), "error");
  EXPECT_EQ(Text("ab", "d"), "error");
}

TEST(JinjaFormatSpec, RefusesOtherForms) {
  for (const char* spec : {"zz", "5.", "99999999999999999999", "9999999", ".5000", "5x5"}) {
    EXPECT_EQ(Text("a", spec), "bad spec") << spec;
  }
}

}  // namespace
}  // namespace trivet::text::jinja
