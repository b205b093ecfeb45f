// SPDX-License-Identifier: Apache-2.0
#include "sampling/stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace trivet::sampling {
namespace {

StopMatcher Make(std::vector<std::string> stops, StopMatcher::Cut cut = StopMatcher::Cut::kBefore) {
  auto matcher = StopMatcher::Make(std::move(stops), cut);
  EXPECT_TRUE(matcher.ok());
  return std::move(matcher).value();
}

// Text emitted for pieces of the given sizes, and the stop string, as "text|stop".
std::string Stream(StopMatcher matcher, std::string_view text, size_t piece) {
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) out += matcher.Push(text.substr(i, piece));
  out += matcher.Flush();
  return out + "|" + matcher.matched_stop();
}

TEST(StopMatcher, RefusesEmptyAndInvalidStrings) {
  EXPECT_EQ(StopMatcher::Make({"a", ""}).error().code, Code::kInvalid);
  EXPECT_EQ(StopMatcher::Make({"\xff"}).error().code, Code::kInvalid);
}

TEST(StopMatcher, WithoutStopsPassesTextThrough) {
  StopMatcher matcher = Make({});
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Flush(), "");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBeginAStop) {
  StopMatcher matcher = Make({"</end>", "\n\n"});
  EXPECT_EQ(matcher.Push("one <"), "one ");
  EXPECT_EQ(matcher.held(), "<");
  EXPECT_EQ(matcher.Push("b>\n"), "<b>");
  EXPECT_EQ(matcher.Push("</en"), "\n");
  EXPECT_EQ(matcher.held(), "</en");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.Push("d> tail"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.matched_stop(), "</end>");
  EXPECT_EQ(matcher.Push("more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, FlushGivesTheHeldText) {
  StopMatcher matcher = Make({"STOP"});
  EXPECT_EQ(matcher.Push("xSTO"), "x");
  EXPECT_EQ(matcher.Flush(), "STO");
  EXPECT_EQ(matcher.Push("P"), "P");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, CutAfterIncludesTheStop) {
  EXPECT_EQ(Stream(Make({"END"}, StopMatcher::Cut::kAfter), "a END b", 2), "a END|END");
  EXPECT_EQ(Stream(Make({"END"}), "a END b", 2), "a |END");
}

TEST(StopMatcher, CutsBeforeAMatchThatBeganInsideAnotherPrefix) {
  // "abc" is held for "abcd"; "bc" is complete first.
  EXPECT_EQ(Stream(Make({"abcd", "bc"}), "xabcd", 1), "xa|bc");
  EXPECT_EQ(Stream(Make({"c", "abc", "bc"}), "xabcd", 1), "x|abc");
  EXPECT_EQ(Stream(Make({"aab"}), "aaab", 1), "a|aab");
}

TEST(StopMatcher, MultiByteCharactersStayWhole) {
  StopMatcher matcher = Make({"é!"});
  EXPECT_EQ(matcher.Push("aé"), "a");
  EXPECT_EQ(matcher.Push("?"), "é?");
  EXPECT_EQ(matcher.Push("è"), "è");
}

// Character by character, with the definition taken literally.
std::string Obvious(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      const bool ends_here = stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0;
      if (ends_here && stop.size() > best.size()) best = stop;
    }
    if (!best.empty()) return text.substr(0, end - best.size()) + "|" + best;
  }
  return text + "|";
}

TEST(StopMatcher, AgreesWithTheDefinitionForEveryCutIntoPieces) {
  std::mt19937 random(5);
  int matches = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](size_t least, size_t most) {
      std::string text(least + random() % (most - least + 1), 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % 2);
      return text;
    };
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = word(3, 7);
    const std::string text = word(0, 25);
    const std::string expected = Obvious(stops, text);
    matches += expected.back() != '|';
    for (size_t piece = 1; piece <= 9; ++piece) ASSERT_EQ(Stream(Make(stops), text, piece), expected) << text;
  }
  EXPECT_GT(matches, 500);
}

TEST(StopMatcher, LongPeriodicStopIsLinear) {
  const std::string stop = std::string(100000, 'a') + "b";
  StopMatcher matcher = Make({stop});
  EXPECT_EQ(matcher.Push(std::string(300000, 'a')).size(), 200000u);
  EXPECT_EQ(matcher.Push("b"), "");
  EXPECT_TRUE(matcher.matched());
}

}  // namespace
}  // namespace trivet::sampling
