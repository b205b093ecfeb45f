// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/grammar/texts.h"

namespace trivet::grammar {
namespace {

using testing::HasSubstr;

TEST(GrammarBuilder, MakesEqualExpressionsOnce) {
  GrammarBuilder b;
  EXPECT_EQ(b.Literal("ab"), b.Literal("ab"));
  EXPECT_NE(b.Literal("ab"), b.Literal("ba"));
  EXPECT_EQ(b.Sequence({b.Literal("a"), b.Empty()}), b.Sequence({b.Literal("a"), b.Empty()}));
  EXPECT_NE(b.Sequence({b.Literal("a"), b.Literal("b")}), b.Sequence({b.Literal("b"), b.Literal("a")}));
  EXPECT_EQ(b.Choice({b.Literal("a"), b.Literal("b")}), b.Choice({b.Literal("b"), b.Literal("a")}));
  EXPECT_NE(b.Repeat(b.Literal("a"), 1, 2), b.Repeat(b.Literal("a"), 0, 2));
}

TEST(GrammarBuilder, LiteralsAreExactlyThose) {
  GrammarBuilder b;
  const NodeId root = b.Literals({"north", "nor", "south", "", "northwest", "nor"});
  Language language(std::move(b), root);
  for (const char* text : {"north", "nor", "south", "", "northwest"}) EXPECT_TRUE(language.Has(text)) << text;
  for (const char* text : {"n", "no", "northw", "southern", "x"}) EXPECT_FALSE(language.Has(text)) << text;
  EXPECT_TRUE(language.Begins("northw"));
  EXPECT_FALSE(language.Begins("northe"));
}

TEST(GrammarBuilder, LeavesOutWhatCannotBeCompleted) {
  GrammarBuilder b;
  const NodeId endless = b.Rule();
  b.Define(endless, b.Sequence({b.Literal("("), endless}));  // never comes to its end
  const NodeId root = b.Choice({b.Sequence({b.Literal("a"), endless}), b.Literal("b"),
                                b.Sequence({b.Literal("c"), b.Repeat(endless, 0, kNoLimit), b.Literal("d")})});
  Language language(std::move(b), root);
  EXPECT_FALSE(language.Begins("a"));
  EXPECT_FALSE(language.Begins("c("));
  EXPECT_TRUE(language.Has("b"));
  EXPECT_TRUE(language.Has("cd"));
}

TEST(GrammarBuilder, RefusesWhatNothingSatisfies) {
  GrammarBuilder b;
  const NodeId rule = b.Rule();
  b.Define(rule, b.Sequence({b.Literal("x"), rule}));
  const auto made = std::move(b).Finish(rule, "this one");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kInvalid);
  EXPECT_THAT(made.error().message, HasSubstr("this one"));
  GrammarBuilder other;
  const NodeId none = other.Repeat(other.Literal("a"), 3, 2);
  EXPECT_FALSE(std::move(other).Finish(none, "it").ok());
}

TEST(GrammarBuilder, RefusesWhatBeginsWithItself) {
  GrammarBuilder b;
  const NodeId rule = b.Rule();
  b.Define(rule, b.Choice({b.Sequence({b.Optional(b.Literal(" ")), rule, b.Literal("x")}), b.Literal("y")}));
  EXPECT_THAT(std::move(b).Finish(rule, "it").error().message, HasSubstr("begin with themselves"));
}

TEST(GrammarBuilder, RefusesMoreThanItsLimit) {
  GrammarBuilder b;
  NodeId last = b.Empty();
  for (size_t i = 0; i < kMaxNodes; ++i) last = b.Literal(std::to_string(i));
  EXPECT_EQ(std::move(b).Finish(last, "it").error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace trivet::grammar
