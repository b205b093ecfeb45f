// SPDX-License-Identifier: Apache-2.0
#include "kernels/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/reference.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr uint64_t kLastUniform = kDrawOne - 1;

// How the logits of a case are made.
constexpr const char* kForms[] = {
    "random",       "ties",           "all equal", "zeros of both signs", "nearly all forbidden",
    "hardly apart", "one stands out", "huge",      "descending",          "broken",
    "all forbidden"};
constexpr int kBroken = 9, kAllForbidden = 10;

float LogitOf(int form, int64_t i, int64_t n, std::mt19937_64* random) {
  const float uniform = static_cast<float>((*random)() >> 40) * 0x1p-24F;  // [0, 1)
  switch (form) {
    case 1:
      return std::floor(uniform * 20);
    case 2:
      return -7.25F;
    case 3:
      return uniform < 0.5F ? 0.0F : -0.0F;
    case 4:
      return (*random)() % 50 == 0 || i == n / 2 ? 3 * uniform : -kInfinity;
    case 5:
      return 12 + uniform * 1e-4F;
    case 6:
      return i == n / 3 ? 40.0F : uniform;
    case 7:
      return (uniform * 2 - 1) * 3.4e38F;
    case 8:
      return 10 - static_cast<float>(i) * 0.01F;
    case kBroken:
      return i == n / 2 ? kNaN : i == 2 * n / 3 ? kInfinity : uniform;
    case kAllForbidden:
      return -kInfinity;
    default:
      return 60 * uniform - 30;
  }
}

// Rules of every kind, at the ends of what there is and in between.
std::vector<DrawRule> Rules(int64_t n, std::mt19937_64* random) {
  const auto pick = [&](const auto& values) { return values[(*random)() % std::size(values)]; };
  const uint64_t uniforms[] = {0, kLastUniform, (*random)() >> 11, (*random)() >> 11, (*random)() >> 11};
  const uint64_t parts[] = {kDrawOne, kDrawOne, kDrawOne - 1, kDrawOne / 10 * 9, kDrawOne / 2, kDrawOne / 1000, 1};
  const float scales[] = {1, 1, 1 / 0.7F, 0.1F, 1e5F, 1e-5F, 0};
  const uint32_t weights[] = {0, 0, 1, 1 << 10, 53687092, uint32_t{1} << 30};
  const int64_t counts[] = {0, 0, 1, 2, 5, 50, 1024, n - 1, n, n + 1, INT32_MAX};
  std::vector<DrawRule> rules;
  for (int i = 0; i < 24; ++i) {
    const auto k = static_cast<int32_t>(std::max<int64_t>(0, pick(counts)));
    rules.push_back({pick(uniforms), pick(parts), pick(scales), pick(weights), k, 0});
  }
  rules[0] = {};
  for (DrawRule* rule : {&rules[1], &rules[2]}) *rule = {pick(uniforms), kDrawOne, 1, 0, 0, 0};
  rules[3] = {pick(uniforms), kDrawOne / 100 * 95, 1, 0, 20, 0};
  rules[4] = {pick(uniforms), kDrawOne / 100 * 95, 1, 0, 0, 0};
  return rules;
}

// The token that the reference draws from a row.
int32_t Drawn(const std::vector<float>& logits, const DrawRule& rule) {
  const auto n = static_cast<int64_t>(logits.size());
  const int32_t row = 0;
  uint64_t key = 0;
  for (int64_t i = 0; i < n; ++i) key = std::max(key, ArgmaxKey(logits[static_cast<size_t>(i)], i));
  DrawRef({logits.data(), n, n, &row, &rule, &key, 1, 0, 1});
  return ArgmaxToken(key);
}

// How often each token is drawn when u takes `steps` values, in the middle of as many equal parts.
std::vector<int> Counts(const std::vector<float>& logits, DrawRule rule, int steps) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < steps; ++i) {
    rule.uniform = kDrawOne / static_cast<uint64_t>(2 * steps) * static_cast<uint64_t>(2 * i + 1);
    ++counts[static_cast<size_t>(Drawn(logits, rule))];
  }
  return counts;
}

}  // namespace

void CompareDraw(RowLog* log) {
  std::mt19937_64 random(93);
  std::vector<int64_t> widths = {1, 2, 5, 64, 65, 300, 2047, 2048, 2049, 4099, 16512};
  if (log->large()) widths.push_back(248320);
  for (const int64_t n : widths) {
    for (int form = 0; form < static_cast<int>(std::size(kForms)); ++form) {
      const int64_t stride = n + 3, count = 3;
      std::vector<float> logits(static_cast<size_t>(count * stride), kNaN);  // pads must not be looked at
      for (int64_t row = 0; row < count; ++row) {
        for (int64_t i = 0; i < n; ++i) logits[static_cast<size_t>(row * stride + i)] = LogitOf(form, i, n, &random);
      }
      const std::vector<DrawRule> rules = Rules(n, &random);
      const auto drawn = static_cast<int64_t>(rules.size());
      std::vector<int32_t> rows;
      for (int64_t i = 0; i < drawn; ++i) rows.push_back(i == 6 ? -1 : static_cast<int32_t>((i + 1) % count));
      for (const int64_t parts : {kArgmaxParts, int64_t{1}}) {
        std::vector<uint64_t> best(static_cast<size_t>(drawn * kArgmaxParts), 7);
        ArgmaxRef({logits.data(), stride, n, 0, rows.data(), best.data(), 0, drawn * kArgmaxParts});
        for (int64_t i = 0; i < drawn && parts == 1; ++i) {
          const auto begin = best.begin() + i * kArgmaxParts;
          best[static_cast<size_t>(i)] = *std::max_element(begin, begin + kArgmaxParts);
        }
        log->Compare<Draw>(std::to_string(n) + " tokens, " + kForms[form],
                           [&](const KernelRow<Draw>& row, Outputs* outputs) {
                             Guarded<uint64_t> keys(drawn * parts);
                             std::copy_n(best.begin(), keys.size(), keys.data());
                             Draw::Args args{logits.data(), stride, n, rows.data(), rules.data(), keys.data(), parts};
                             args.end = 4;
                             row.run(args);
                             args.begin = args.end;
                             args.end = drawn;
                             row.run(args);
                             outputs->Take(keys);
                           });
      }
    }
  }
}

namespace {

TEST(FractionOf, IsTheProductsInteger) {
  __extension__ using Wide = unsigned __int128;
  std::mt19937_64 random(94);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t a = random() >> (2 + random() % 62), fraction = (random() >> 11) >> random() % 53;
    const auto product = static_cast<Wide>(a) * fraction;
    const auto below = static_cast<uint64_t>(product >> 53);
    ASSERT_EQ(FractionOf(a, fraction), below) << a << " " << fraction;
    ASSERT_EQ(FractionAbove(a, fraction), static_cast<uint64_t>((product + kDrawOne - 1) >> 53)) << a;
  }
  const uint64_t largest = (uint64_t{1} << 62) - 1;
  EXPECT_EQ(FractionOf(largest, kDrawOne), largest);
  EXPECT_EQ(FractionAbove(largest, kDrawOne), largest);
  EXPECT_EQ(FractionAbove(largest, 1), (largest >> 53) + 1);
  EXPECT_EQ(FractionAbove(1, 1), 1U) << "a part of the mass is never nothing";
}

TEST(WeightOf, IsTheProbabilityOverThatOfTheBest) {
  EXPECT_EQ(WeightOf(3, 3, 1), uint32_t{1} << 30);
  for (const float distance : {0.01F, 0.5F, 1.0F, 3.0F, 10.0F, 16.6F, 20.0F}) {
    const double expected = std::exp(-static_cast<double>(distance) / 2) * 0x1p30;
    EXPECT_NEAR(WeightOf(5 - distance, 5, 0.5F), expected, 0.5 + expected * 1e-6) << distance;
  }
  EXPECT_EQ(WeightOf(-21.4F, 0, 1), 1U) << "2^-30.9 rounds up";
  EXPECT_EQ(WeightOf(-21.5F, 0, 1), 0U) << "2^-31.02 rounds down";
  EXPECT_EQ(WeightOf(-kInfinity, 0, 1), 0U);
  EXPECT_EQ(WeightOf(-kInfinity, 3e38F, 0), 0U) << "infinity times a scale of 0";
  EXPECT_EQ(WeightOf(-3e38F, 3e38F, 1), 0U);
}

TEST(CanDraw, FromNumbersAlone) {
  for (const float logit : {-3e38F, -1.0F, 0.0F, 3e38F}) EXPECT_TRUE(CanDraw(ArgmaxKey(logit, 5))) << logit;
  for (const float logit : {-kInfinity, kInfinity, kNaN, -kNaN}) EXPECT_FALSE(CanDraw(ArgmaxKey(logit, 5))) << logit;
  EXPECT_FALSE(CanDraw(0)) << "no token";
}

// Weights 4, 2, 1, 1 of tokens 2, 0, 1, 3.
const std::vector<float> kLogits = {static_cast<float>(std::log(2)), 0, static_cast<float>(std::log(4)), 0};

TEST(Draw, FollowsTheWeightsInTheOrderOfTokens) {
  const DrawRule all{0, kDrawOne, 1, 0, 0, 0};
  EXPECT_EQ(Counts(kLogits, all, 800), (std::vector<int>{200, 100, 400, 100}));
  DrawRule rule = all;
  rule.uniform = 0;
  EXPECT_EQ(Drawn(kLogits, rule), 0);
  rule.uniform = kLastUniform;
  EXPECT_EQ(Drawn(kLogits, rule), 3);
}

TEST(Draw, KeepsTheBestOfTheOrder) {
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne, 1, 0, 2, 0}, 600), (std::vector<int>{200, 0, 400, 0}));
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne, 1, 0, 3, 0}, 700), (std::vector<int>{200, 100, 400, 0}))
      << "of equals the lower";
  // Half of the mass is the best token's own, but for rounding; a bit more takes one more.
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne / 100 * 49, 1, 0, 0, 0}, 100), (std::vector<int>{0, 0, 100, 0}));
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne / 100 * 51, 1, 0, 0, 0}, 600), (std::vector<int>{200, 0, 400, 0}));
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne / 100 * 76, 1, 0, 0, 0}, 700), (std::vector<int>{200, 100, 400, 0}));
  // Of what top-k left: 4 of 6 are two thirds.
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne / 100 * 66, 1, 0, 2, 0}, 100), (std::vector<int>{0, 0, 100, 0}));
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne / 100 * 67, 1, 0, 2, 0}, 600), (std::vector<int>{200, 0, 400, 0}));
  // A quarter of the best one's, but for rounding.
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne, 1, 268435000, 0, 0}, 800), (std::vector<int>{200, 100, 400, 100}));
  EXPECT_EQ(Counts(kLogits, {0, kDrawOne, 1, 268436000, 0, 0}, 600), (std::vector<int>{200, 0, 400, 0}));
}

}  // namespace
}  // namespace trivet::kernels
