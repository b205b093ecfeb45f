// SPDX-License-Identifier: Apache-2.0
#include "engine/constraints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/prompts.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

class Holding : public testing::Test {
 protected:
  const Prompts prompts_ = Prompts::Open(DemoDir()).value();
  Constraints constraints_{&prompts_.tokenizer(), {2, 0}};
};

TEST_F(Holding, SpecialAndEndTokensAreNoText) {
  grammar::Matcher matcher(constraints_.Pattern("(.|\n)*", "pattern").value());
  const grammar::TokenMask& mask = matcher.Allowed();
  const text::Tokenizer& tokenizer = prompts_.tokenizer();
  int64_t allowed = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool bit = (mask[static_cast<size_t>(id) / 64] >> id % 64 & 1) != 0;
    EXPECT_FALSE(bit && tokenizer.IsSpecial(id)) << id;
    allowed += bit;
  }
  EXPECT_GT(allowed, 3000);
}

TEST_F(Holding, EqualFormsShareTheirStates) {
  const Json schema = Json::parse(R"({"type": "integer"})");
  EXPECT_EQ(constraints_.Schema(schema, "a").value(), constraints_.Schema(schema, "b").value());
  EXPECT_NE(constraints_.Pattern("a", "a").value(), constraints_.Choice({"a"}, "a").value());
  EXPECT_EQ(constraints_.JsonObject().value(), constraints_.JsonObject().value());
}

TEST_F(Holding, OldFormsAreForgotten) {
  const ConstraintPtr first = constraints_.Pattern("a", "a").value();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(constraints_.Pattern(std::to_string(i), "a").ok());
  EXPECT_NE(constraints_.Pattern("a", "a").value(), first);
}

TEST_F(Holding, RefusesEmptyChoices) {
  EXPECT_EQ(constraints_.Choice({}, "guided_choice").error().code, Code::kInvalid);
  EXPECT_EQ(constraints_.Choice({"a", ""}, "guided_choice").error().code, Code::kInvalid);
  EXPECT_EQ(constraints_.Choice({"\xff"}, "guided_choice").error().code, Code::kInvalid);
}

}  // namespace
}  // namespace trivet::engine
