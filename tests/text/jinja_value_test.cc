// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_value.h"

#include <gtest/gtest.h>

#include <limits>

namespace trivet::text::jinja {
namespace {

Value Text(const char* text) { return Value::String(text); }

TEST(JinjaValue, Truth) {
  for (const Value& value : {Value(), Value::None(), Value::Bool(false), Value::Int(0), Value::Float(0), Text(""),
                             *MakeList({}), *MakeTuple({}), *MakeDict({})}) {
    EXPECT_FALSE(Truth(value)) << TypeName(value);
  }
  for (const Value& value :
       {Value::Bool(true), Value::Int(-1), Value::Float(0.1), Text(" "), *MakeList({Value()}), *MakeIterator({})}) {
    EXPECT_TRUE(Truth(value)) << TypeName(value);
  }
}

TEST(JinjaValue, NumbersCompareExactly) {
  EXPECT_TRUE(Equal(Value::Int(1), Value::Float(1)));
  EXPECT_TRUE(Equal(Value::Int(1), Value::Bool(true)));
  EXPECT_FALSE(Equal(Value::Int((int64_t{1} << 53) + 1), Value::Float(9007199254740992.0)));
  EXPECT_TRUE(*Less(Value::Float(9007199254740992.0), Value::Int((int64_t{1} << 53) + 1)));
  const Value nan = Value::Float(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(Equal(nan, nan));
  EXPECT_FALSE(*Less(nan, Value::Int(1)));
  EXPECT_TRUE(*Less(Value::Int(INT64_MAX), Value::Float(1e300)));
  EXPECT_TRUE(*Less(Value::Float(-1e300), Value::Int(INT64_MIN)));
}

TEST(JinjaValue, SequencesCompareItemByItem) {
  EXPECT_TRUE(Equal(*MakeList({Value::Int(1)}), *MakeList({Value::Float(1)})));
  EXPECT_FALSE(Equal(*MakeList({Value::Int(1)}), *MakeTuple({Value::Int(1)})));
  EXPECT_TRUE(*Less(*MakeList({Value::Int(1)}), *MakeList({Value::Int(1), Value::Int(0)})));
  EXPECT_FALSE(Less(*MakeDict({}), *MakeDict({})).ok());
  EXPECT_FALSE(Less(Value::Int(1), Text("1")).ok());
}

TEST(JinjaValue, DictionariesKeepOrderAndUniteEqualKeys) {
  const Value dict = *MakeDict({{Text("b"), Value::Int(1)},
                                {Value::Int(1), Value::Int(2)},
                                {Text("b"), Value::Int(3)},
                                {Value::Bool(true), Value::Int(4)}});
  const auto& object = dict.object<DictObject>();
  ASSERT_EQ(object.entries.size(), 2U);
  EXPECT_EQ(object.entries[0].first.text(), "b");
  EXPECT_EQ(object.entries[0].second.integer(), 3);
  EXPECT_EQ((*Lookup(object, Value::Float(1)))->integer(), 4);
  EXPECT_EQ(*Lookup(object, Text("z")), nullptr);
  EXPECT_FALSE(Lookup(object, *MakeList({})).ok());
  EXPECT_FALSE(MakeDict({{*MakeTuple({*MakeList({})}), Value()}}).ok());
  EXPECT_TRUE(Equal(dict, *MakeDict({{Value::Int(1), Value::Int(4)}, {Text("b"), Value::Int(3)}})));
}

TEST(JinjaValue, NestingAndWeightAreBounded) {
  Value value = Value::Int(1);
  int levels = 0;
  while (true) {
    Result<Value> outer = MakeList({value});
    if (!outer.ok()) break;
    value = *outer;
    ++levels;
  }
  EXPECT_EQ(levels, kMaxNesting);
  value = Value::String(std::string(1 << 20, 'x'));
  int doublings = 0;
  for (; doublings < 50; ++doublings) {
    Result<Value> twice = MakeList({value, value});
    if (!twice.ok()) break;
    value = *twice;
  }
  EXPECT_EQ(doublings, 5);
}

TEST(JinjaValue, FromJson) {
  const Value value = *FromJson(Json::parse(R"({"a":[1,2.5,"x",null,true],"b":{}})"));
  ASSERT_TRUE(value.Is(Kind::kDict));
  const Value& list = **Lookup(value.object<DictObject>(), Text("a"));
  EXPECT_TRUE(list.items()[0].Is(Kind::kInt));
  EXPECT_TRUE(list.items()[1].Is(Kind::kFloat));
  EXPECT_TRUE(list.items()[3].Is(Kind::kNone));
  EXPECT_EQ(FromJson(Json("\xff"))->text(), "\xEF\xBF\xBD");
  EXPECT_FALSE(FromJson(Json(UINT64_MAX)).ok());
  Json deep = Json::array();
  for (int i = 0; i < 200; ++i) deep = Json::array({std::move(deep)});
  EXPECT_FALSE(FromJson(deep).ok());
}

TEST(JinjaValue, LengthCountsCodePoints) { EXPECT_EQ(Text("h\u00e9\U0001F600").length(), 3); }

}  // namespace
}  // namespace trivet::text::jinja
