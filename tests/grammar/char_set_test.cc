// SPDX-License-Identifier: Apache-2.0
#include "grammar/char_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/str.h"
#include "tests/grammar/texts.h"

namespace trivet::grammar {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::string Utf8Of(uint32_t c) {
  std::string out;
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
  if (c < 0x10000) {
    return {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
            static_cast<char>(0x80 | (c & 63))};
  }
  return {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
          static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
}

TEST(CharSet, MergesAndComplements) {
  CharSet set('a', 'c');
  set.Add('d', 'f');
  set.Add('x', 'x');
  EXPECT_THAT(set.ranges(), ElementsAre(Pair('a', 'f'), Pair('x', 'x')));
  EXPECT_TRUE(set.Contains('e'));
  EXPECT_FALSE(set.Contains('g'));
  EXPECT_EQ(set.Complement().Complement().ranges(), set.ranges());
  EXPECT_TRUE(set.Intersection(CharSet('0', '9')).empty());
  EXPECT_THAT(set.Intersection(CharSet('e', 'y')).ranges(), ElementsAre(Pair('e', 'f'), Pair('x', 'x')));
}

TEST(CharSet, HasNoSurrogates) {
  const CharSet all(0, 0x10FFFF);
  EXPECT_EQ(all.ranges(), CharSet::All().ranges());
  EXPECT_FALSE(all.Contains(0xD800));
  EXPECT_TRUE(CharSet(0xD900, 0xDA00).empty());
}

TEST(CharSet, Utf8IsExact) {
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    CharSet set;
    for (int i = 0; i < 3; ++i) {
      const uint32_t first = static_cast<uint32_t>(random()) % (round < 20 ? 0x1200 : 0x110000);
      set.Add(first, first + static_cast<uint32_t>(random()) % (round % 2 == 0 ? 70 : 0x3000));
    }
    GrammarBuilder b;
    const NodeId root = Utf8(set, &b);
    if (set.empty()) continue;
    Language language(std::move(b), root);
    const auto look = [&](uint32_t c) { EXPECT_EQ(language.Has(Utf8Of(c)), set.Contains(c)) << c; };
    for (const auto& [first, last] : set.ranges()) {
      for (const uint32_t c : {first, last, first + 1, last - 1, (first + last) / 2}) look(c);
      if (first > 0) look(first - 1);
      if (last < 0x10FFFF) look(last + 1);
    }
    for (int i = 0; i < 200; ++i) look(static_cast<uint32_t>(random()) % 0xD800);
  }
}

TEST(CharSet, Utf8RefusesOtherBytes) {
  GrammarBuilder b;
  const NodeId root = b.Repeat(Utf8(CharSet::All(), &b), 0, kNoLimit);
  Language language(std::move(b), root);
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (uint32_t k = static_cast<uint32_t>(random()) % 5; k > 0; --k) {
      constexpr uint8_t kBytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2,
                                    0xDF, 0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
      text += static_cast<char>(kBytes[random() % sizeof kBytes]);
    }
    EXPECT_EQ(language.Has(text), IsUtf8(text)) << Quote(text);
  }
}

TEST(CharactersOf, ReadsEveryLength) { EXPECT_THAT(CharactersOf("aé語😀"), ElementsAre(0x61, 0xE9, 0x8A9E, 0x1F600)); }

}  // namespace
}  // namespace trivet::grammar
