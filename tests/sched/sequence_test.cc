// SPDX-License-Identifier: Apache-2.0
#include "sched/sequence.h"

#include <gtest/gtest.h>

namespace trivet::sched {
namespace {

Sequence Make(LogitsMode logits, int32_t prompt, int32_t generated) {
  Sequence sequence;
  sequence.logits = logits;
  sequence.prompt_tokens = prompt;
  sequence.max_new_tokens = logits == LogitsMode::kNone ? 0 : 10;
  sequence.tokens.resize(static_cast<size_t>(prompt + generated));
  return sequence;
}

TEST(PagesFor, RoundsUp) {
  EXPECT_EQ(PagesFor(0), 0);
  EXPECT_EQ(PagesFor(1), 1);
  EXPECT_EQ(PagesFor(kPageTokens), 1);
  EXPECT_EQ(PagesFor(kPageTokens + 1), 2);
}

TEST(Sequence, DecodingIsOneGeneratedTokenBehindAComputedPrompt) {
  Sequence sequence = Make(LogitsMode::kLast, 8, 0);
  sequence.computed = 7;
  EXPECT_FALSE(sequence.decoding());  // the prompt's last token is still prefill
  sequence.tokens.push_back(1);
  sequence.computed = 8;
  EXPECT_TRUE(sequence.decoding());
  sequence.computed = 0;  // preempted
  EXPECT_FALSE(sequence.decoding());
  EXPECT_EQ(sequence.generated(), 1);
  EXPECT_EQ(sequence.remaining(), 9);
  EXPECT_TRUE(sequence.wants_token());
  sequence.max_new_tokens = 1;
  EXPECT_FALSE(sequence.wants_token());
}

TEST(LogitsRows, LastAndNone) {
  const Sequence last = Make(LogitsMode::kLast, 8, 0);
  EXPECT_EQ(LogitsRows(last, 7), 0);
  EXPECT_EQ(LogitsRows(last, 8), 1);
  EXPECT_EQ(LogitsRows(Make(LogitsMode::kNone, 8, 0), 8), 0);
}

TEST(LogitsRows, AllScoresEachPromptPositionOnce) {
  Sequence all = Make(LogitsMode::kAll, 8, 0);
  EXPECT_EQ(LogitsRows(all, 5), 5);
  EXPECT_EQ(LogitsRows(all, 8), 8);
  all.computed = all.scored = 5;
  EXPECT_EQ(LogitsRows(all, 8), 3);
  EXPECT_EQ(LogitsRows(all, 5), 0);
  all.computed = 0;  // preempted in the middle of scoring
  EXPECT_EQ(LogitsRows(all, 4), 0);
  EXPECT_EQ(LogitsRows(all, 7), 2);
}

TEST(LogitsRows, AllAfterThePromptIsAsLast) {
  Sequence all = Make(LogitsMode::kAll, 8, 3);
  all.scored = 8;
  EXPECT_EQ(LogitsRows(all, 8), 0);
  EXPECT_EQ(LogitsRows(all, 10), 0);
  EXPECT_EQ(LogitsRows(all, 11), 1);
}

}  // namespace
}  // namespace trivet::sched
