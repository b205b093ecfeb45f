// SPDX-License-Identifier: Apache-2.0
#include "sched/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace trivet::sched {
namespace {

using ::testing::HasSubstr;

StepPlan TwoSpans() {
  StepPlan plan;
  plan.step = 41;
  plan.tokens = {7, 8, 9, 10};
  plan.spans = {Span{SeqId{5}, 1, 64, 1, 0, 0, 2, 0, 1}, Span{SeqId{1}, 0, 0, 3, 1, 2, 1, 1, 2}};
  plan.pages = {3, 9, 0};
  plan.logits_rows = 3;
  plan.restores = {{5, 1}};
  plan.saves = {{0, 6}, {1, 7}};
  return plan;
}

std::string ErrorOf(const StepPlan& plan) {
  const auto back = StepPlan::Deserialize(plan.Serialize());
  return back.ok() ? "" : back.error().message;
}

TEST(StepPlan, RoundTrip) {
  const StepPlan plan = TwoSpans();
  const auto bytes = plan.Serialize();
  const auto back = StepPlan::Deserialize(bytes);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->step, 41);
  EXPECT_EQ(back->tokens, plan.tokens);
  EXPECT_EQ(back->pages, plan.pages);
  EXPECT_EQ(back->logits_rows, 3);
  ASSERT_EQ(back->restores.size(), 1u);
  EXPECT_EQ(back->restores[0].from, 5);
  ASSERT_EQ(back->saves.size(), 2u);
  EXPECT_EQ(back->saves[1].to, 7);
  ASSERT_EQ(back->spans.size(), 2u);
  EXPECT_EQ(back->spans[1].seq, SeqId{1});
  EXPECT_EQ(std::memcmp(back->spans.data(), plan.spans.data(), 2 * sizeof(Span)), 0);
  EXPECT_EQ(back->Serialize(), bytes);
}

// The same, and of the first span nothing is wanted but a drawn token.
StepPlan OneDrawn() {
  StepPlan plan = TwoSpans();
  plan.spans[0].logits_count = 0;
  plan.spans[1].logits_begin = 0;
  plan.logits_rows = 2;
  plan.drawn = {0};
  plan.rules = {{7, 8, 0.5F, 9, 10, 0}};
  return plan;
}

TEST(StepPlan, DrawnTokensRoundTrip) {
  const auto bytes = OneDrawn().Serialize();
  const auto back = StepPlan::Deserialize(bytes);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->drawn, std::vector<int32_t>{0});
  EXPECT_EQ(back->rules, OneDrawn().rules);
  EXPECT_EQ(back->head_rows(), 3);
  EXPECT_EQ(back->DrawnOf(back->spans[0]), std::optional<size_t>(0));
  EXPECT_EQ(back->DrawnOf(back->spans[1]), std::nullopt);
  EXPECT_EQ(back->Serialize(), bytes);
}

TEST(StepPlan, DrawnTokensEndSpansWithoutLogits) {
  StepPlan plan = OneDrawn();
  plan.drawn = {0, 3};
  plan.rules.resize(2);
  EXPECT_THAT(ErrorOf(plan), HasSubstr("expected logits rows of a span whose token is drawn 0, found 2"));
  for (const std::vector<int32_t>& drawn : {std::vector<int32_t>{1}, {0, 0}, {-1}, {4}}) {
    plan.drawn = drawn;
    plan.rules.resize(drawn.size());
    EXPECT_THAT(ErrorOf(plan), HasSubstr("expected a span to end with token"));
  }
}

TEST(StepPlan, EmptyRoundTrip) {
  const auto back = StepPlan::Deserialize(StepPlan{}.Serialize());
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(back->spans.empty());
}

TEST(StepPlan, EveryTruncationAndExtensionIsRefused) {
  auto bytes = TwoSpans().Serialize();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto back = StepPlan::Deserialize(std::span(bytes).first(size));
    ASSERT_FALSE(back.ok()) << size;
    EXPECT_EQ(back.error().code, Code::kInvalid);
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(StepPlan::Deserialize(bytes).ok());
}

TEST(StepPlan, NoSingleByteChangeCrashes) {
  const auto bytes = TwoSpans().Serialize();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {0x01, 0x7f, 0x80, 0xff}) {
      auto changed = bytes;
      changed[i] ^= static_cast<std::byte>(flip);
      const auto back = StepPlan::Deserialize(changed);
      if (back.ok()) {
        EXPECT_EQ(back->Serialize(), changed);
      }
    }
  }
}

TEST(StepPlan, ContradictionsAreNamed) {
  StepPlan plan = TwoSpans();
  plan.spans[1].token_begin = 2;
  EXPECT_THAT(ErrorOf(plan), HasSubstr("first token of a span"));
  plan = TwoSpans();
  plan.tokens.push_back(0);
  EXPECT_THAT(ErrorOf(plan), HasSubstr("tokens of all spans"));
  plan = TwoSpans();
  plan.spans[0].start = 63;
  EXPECT_THAT(ErrorOf(plan), HasSubstr("pages of a span"));
  plan = TwoSpans();
  plan.pages.push_back(4);
  EXPECT_THAT(ErrorOf(plan), HasSubstr("pages of all spans"));
  plan = TwoSpans();
  plan.logits_rows = 4;
  EXPECT_THAT(ErrorOf(plan), HasSubstr("logits rows of all spans"));
  plan = TwoSpans();
  plan.spans[1].logits_count = 4;
  EXPECT_THAT(ErrorOf(plan), HasSubstr("logits rows of a span"));
  plan = TwoSpans();
  plan.pages[0] = -1;
  EXPECT_THAT(ErrorOf(plan), HasSubstr("page id"));
  plan = TwoSpans();
  plan.spans[0].state_slot = -1;
  EXPECT_THAT(ErrorOf(plan), HasSubstr("state slot"));
  plan = TwoSpans();
  plan.saves[1].to = -1;
  EXPECT_THAT(ErrorOf(plan), HasSubstr("state slot"));
}

}  // namespace
}  // namespace trivet::sched
