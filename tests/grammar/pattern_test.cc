// SPDX-License-Identifier: Apache-2.0
#include "grammar/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/grammar/texts.h"

namespace trivet::grammar {
namespace {

using testing::HasSubstr;

Language Of(std::string_view pattern, bool whole = true) {
  GrammarBuilder b;
  const PatternOptions options{whole, [&b](const CharSet& set) { return Utf8(set, &b); }};
  const auto node = ReadPattern(pattern, options, &b, "pattern");
  CHECK_MSG(node.ok(), node.error().message);
  return Language(std::move(b), *node);
}

Error ErrorOf(std::string_view pattern) {
  GrammarBuilder b;
  const PatternOptions options{true, [&b](const CharSet& set) { return Utf8(set, &b); }};
  const auto node = ReadPattern(pattern, options, &b, "guided_regex");
  EXPECT_FALSE(node.ok()) << pattern;
  return node.ok() ? MakeError(Code::kUsage, "none") : node.error();
}

TEST(ReadPattern, ReadsTheUsualForms) {
  const struct {
    const char* pattern;
    std::vector<const char*> yes, no;
  } rows[] = {{"[0-9]{3}-[A-Z]+", {"123-A", "000-ABC"}, {"12-A", "123-", "123-a"}},
              {"(?:ab|c)*d?", {"", "abcab", "d", "ccd"}, {"a", "dd", "b"}},
              {"(?<year>\\d{4})", {"2024"}, {"202", "20245"}},
              {"a{2,3}?", {"aa", "aaa"}, {"a", "aaaa"}},
              {"a{2,}", {"aa", "aaaaaaaa"}, {"a"}},
              {"^[^\\d\\s]+$", {"abc", "a-b"}, {"a1", "a b", ""}},
              {"\\u00e9|\\x41|\\t|\\.|\\/", {"é", "A", "\t", ".", "/"}, {"e", "x", "t"}},
              {".", {"a", "語", "😀"}, {"", "\n", "ab", "\xF0\x9F"}},
              {"[é-ü語]+", {"éü", "語é"}, {"e", "\xC3"}},
              {"x{y", {"x{y"}, {"x", "xy"}},
              {"[-a\\]]+", {"-", "a]-"}, {"b"}},
              {"\\w+@\\w+\\.com", {"a_1@b.com"}, {"@b.com", "a@b,com"}}};
  for (const auto& row : rows) {
    Language language = Of(row.pattern);
    for (const char* text : row.yes) EXPECT_TRUE(language.Has(text)) << row.pattern << " " << text;
    for (const char* text : row.no) EXPECT_FALSE(language.Has(text)) << row.pattern << " " << text;
  }
}

TEST(ReadPattern, FindsAPartOfTheText) {
  Language part = Of("ab|^c|d$", false);
  for (const char* text : {"ab", "xxabyy", "c", "cxx", "d", "xxd"}) EXPECT_TRUE(part.Has(text)) << text;
  for (const char* text : {"", "a", "xc", "dx"}) EXPECT_FALSE(part.Has(text)) << text;
  EXPECT_TRUE(part.Begins("xc"));  // "ab" may follow
}

TEST(ReadPattern, NamesWhatItDoesNotRead) {
  for (const char* pattern : {"(?=a)b", "(?!a)", "(?<=a)b", "(a)\\1", "\\bword", "\\p{L}", "a^b", "(a$)b", "(?i)a",
                              "a*+", "a{1,2000000}", "\\ud83d"}) {
    EXPECT_EQ(ErrorOf(pattern).code, Code::kUnsupported) << pattern;
  }
  for (const char* pattern : {"(a", "a)", "[a", "*a", "a{3,2}", "\\", "\\xg0", "[b-a]", "(?<n", "\xff"}) {
    EXPECT_EQ(ErrorOf(pattern).code, Code::kInvalid) << pattern;
  }
  EXPECT_THAT(ErrorOf("a\\bc").message, HasSubstr("guided_regex"));
  EXPECT_EQ(ErrorOf(std::string(5000, '(')).code, Code::kUnsupported);
}

// A random pattern over a and b, and where its matches end: a bit for each place in the text.
struct RandomPattern {
  std::string text;
  std::function<uint32_t(std::string_view, uint32_t)> ends;  // of matches that begin at one of these places
};

RandomPattern RandomAtom(std::mt19937* random, int depth);

RandomPattern RandomTerms(std::mt19937* random, int depth) {
  RandomPattern out{"", [](std::string_view, uint32_t from) { return from; }};
  constexpr struct {
    const char* text;
    int min, max;
  } kTimes[] = {{"", 1, 1}, {"*", 0, 9}, {"+", 1, 9}, {"?", 0, 1}, {"{2}", 2, 2}, {"{0,2}", 0, 2}, {"{3,}", 3, 9}};
  for (uint32_t terms = static_cast<uint32_t>((*random)()) % 4; terms > 0; --terms) {
    const RandomPattern atom = RandomAtom(random, depth);
    const auto times = kTimes[(*random)() % 7];
    out.text += atom.text + times.text;
    out.ends = [before = out.ends, atom, times](std::string_view text, uint32_t from) {
      uint32_t now = before(text, from), all = 0;
      for (int done = 0; done <= times.max; now = atom.ends(text, now), ++done) all |= done >= times.min ? now : 0;
      return all;
    };
  }
  return out;
}

RandomPattern RandomAtom(std::mt19937* random, int depth) {
  if (depth > 0 && (*random)() % 2 == 0) {
    const RandomPattern one = RandomTerms(random, depth - 1), two = RandomTerms(random, depth - 1);
    return {"(" + one.text + "|" + two.text + ")",
            [one, two](std::string_view text, uint32_t from) { return one.ends(text, from) | two.ends(text, from); }};
  }
  constexpr std::pair<const char*, const char*> kAtoms[] = {{"a", "a"}, {"b", "b"}, {".", "ab"}, {"[^a]", "b"}};
  const auto [pattern, characters] = kAtoms[(*random)() % 4];
  return {pattern, [set = std::string(characters)](std::string_view text, uint32_t from) {
            uint32_t out = 0;
            for (size_t i = 0; i < text.size(); ++i) {
              if ((from >> i & 1) != 0 && set.find(text[i]) != std::string::npos) out |= 2u << i;
            }
            return out;
          }};
}

TEST(ReadPattern, AgreesWithMatchingByPlaces) {
  std::mt19937 random(7);
  int64_t matches = 0;
  for (int round = 0; round < 100; ++round) {
    const RandomPattern pattern = RandomTerms(&random, 3);
    Language language = Of(pattern.text);
    for (uint32_t length = 0; length <= 6; ++length) {
      for (uint32_t bits = 0; bits < 1u << length; ++bits) {
        std::string text;
        for (uint32_t i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
        const bool matched = (pattern.ends(text, 1) >> length & 1) != 0;
        matches += matched;
        ASSERT_EQ(language.Has(text), matched) << pattern.text << " " << text;
      }
    }
  }
  EXPECT_GT(matches, 300);
}

}  // namespace
}  // namespace trivet::grammar
