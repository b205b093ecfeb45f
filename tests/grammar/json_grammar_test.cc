// SPDX-License-Identifier: Apache-2.0
#include "grammar/json_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "tests/grammar/texts.h"

namespace trivet::grammar {
namespace {

template <class Make>
Language Of(const Make& make) {
  GrammarBuilder b;
  JsonGrammar json(&b);
  const NodeId root = make(&json);
  return Language(std::move(b), root);
}

Language Value() {
  return Of([](JsonGrammar* json) { return json->AnyValue(); });
}

TEST(JsonGrammar, StringsCountCharacters) {
  Language two = Of([](JsonGrammar* json) { return json->String(2, 2); });
  for (const char* text :
       {R"("ab")", R"("é語")", R"("\u00e9\n")", R"("\ud83d\ude00x")", R"("😀😀")", R"("\"\\")", R"("\/a")"}) {
    EXPECT_TRUE(two.Has(text)) << text;
  }
  for (const char* text : {R"("a")", R"("abc")", R"("\ud83d\ude00")", R"("\ud83dab")", R"("\ude00a")", R"("\x1")",
                           "\"a\nb\"", "\"\xC3\x28\"", R"("\u00g0b")", "\"\x7F\x01\""}) {
    EXPECT_FALSE(two.Has(text)) << text;
  }
}

TEST(JsonGrammar, OtherStringsAreNoneOfTheNames) {
  Language other = Of([](JsonGrammar* json) { return json->OtherString({"id", "identity", "名", "a\"b"}); });
  for (const char* text :
       {R"("")", R"("i")", R"("ide")", R"("identit")", R"("identity2")", R"("x")", R"("名前")", R"("日")"}) {
    EXPECT_TRUE(other.Has(text)) << text;
  }
  // An escape could spell one of them.
  for (const char* text : {R"("id")", R"("identity")", R"("名")", R"("\u0069d")", R"("a\"b")"}) {
    EXPECT_FALSE(other.Has(text)) << text;
  }
}

TEST(JsonGrammar, NumbersAreThoseOfJson) {
  Language number = Of([](JsonGrammar* json) { return json->Number(); });
  for (const char* text : {"0", "-0", "7", "-12.50", "1e9", "1E-7", "0.1e+20", "18446744073709551615"}) {
    EXPECT_TRUE(number.Has(text)) << text;
  }
  for (const char* text : {"", "-", "01", "1.", ".5", "+1", "1e", "0x1", "1e999", "NaN", "100000000000000000000000"}) {
    EXPECT_FALSE(number.Has(text)) << text;
  }
}

TEST(JsonGrammar, IntegersKeepToTheirBounds) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::optional<int64_t> min, max;
    const int64_t span = round % 2 == 0 ? 30 : 2000;
    if (round % 4 != 1) min = static_cast<int64_t>(random() % static_cast<uint64_t>(2 * span)) - span;
    if (round % 4 != 2) max = (min ? *min : -span) + static_cast<int64_t>(random() % static_cast<uint64_t>(span));
    if (!min && !max) continue;
    Language language = Of([&](JsonGrammar* json) { return json->Integer(min, max); });
    for (int64_t value = -span - 100; value < 3 * span; ++value) {
      const bool inside = (!min || value >= *min) && (!max || value <= *max);
      ASSERT_EQ(language.Has(std::to_string(value)), inside)
          << value << " " << min.value_or(-1) << " " << max.value_or(-1);
    }
    EXPECT_FALSE(language.Has("007"));
    EXPECT_FALSE(language.Has("-0"));
  }
  Language all = Of([](JsonGrammar* json) { return json->Integer(INT64_MIN, INT64_MAX); });
  EXPECT_TRUE(all.Has("-9223372036854775808"));
  EXPECT_TRUE(all.Has("9223372036854775807"));
  EXPECT_FALSE(all.Has("9223372036854775808"));
}

Json RandomValue(std::mt19937* random, int depth) {
  const auto pick = [&](uint32_t count) { return static_cast<uint32_t>((*random)()) % count; };
  switch (pick(depth > 0 ? 8 : 6)) {
    case 0:
      return Json();
    case 1:
      return Json(pick(2) == 0);
    case 2:
      return Json(static_cast<int64_t>((*random)()) - (int64_t{1} << 31));
    case 3:
      return Json((static_cast<double>(pick(2000000)) - 1e6) / 1000.0);
    case 4:
    case 5: {
      constexpr const char* kParts[] = {"a", "\"", "\\", "\n", "\x01", "é", "語", "😀", "/", " ", "\x7F"};
      std::string text;
      for (uint32_t i = pick(6); i > 0; --i) text += kParts[pick(11)];
      return Json(text);
    }
    case 6: {
      Json list = Json::array();
      for (uint32_t i = pick(4); i > 0; --i) list.push_back(RandomValue(random, depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (uint32_t i = pick(4); i > 0; --i) object["k" + std::to_string(pick(100))] = RandomValue(random, depth - 1);
      return object;
    }
  }
}

TEST(JsonGrammar, HasEveryValueAsPrintersWriteIt) {
  Language language = Value();
  std::mt19937 random(4);
  for (int i = 0; i < 2000; ++i) {
    const Json value = RandomValue(&random, 4);
    EXPECT_TRUE(language.Has(value.dump())) << value.dump();
    EXPECT_TRUE(language.Has(value.dump(2))) << value.dump(2);
    EXPECT_TRUE(language.Has(value.dump(-1, ' ', true))) << value.dump(-1, ' ', true);  // \u escapes
  }
}

TEST(JsonGrammar, HasNothingElse) {
  Language language = Value();
  std::mt19937 random(5);
  int64_t accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = RandomValue(&random, 3).dump();
    constexpr char kBytes[] = "{}[],:\"\\0123-.eEtrufalsn /\xC3\x01";
    const auto at = static_cast<size_t>(random()) % (text.size() + 1);
    const char byte = kBytes[random() % (sizeof kBytes - 1)];
    if (random() % 2 == 0 && at < text.size()) {
      text[at] = byte;
    } else if (random() % 2 == 0) {
      text.insert(at, 1, byte);
    } else {
      text.erase(at, 1);
    }
    if (!language.Has(text)) continue;
    ++accepted;
    EXPECT_TRUE(Json::accept(text)) << text;
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace trivet::grammar
