// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "sampling/random.h"

namespace trivet::sampling {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SampleResult MustSample(std::span<const float> logits, const SamplingParams& params, int64_t position = 0,
                        const TokenHistory& history = {}) {
  const auto result = Sample(logits, params, history, 0, position);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return *result;
}

std::string ErrorOf(std::span<const float> logits, const SamplingParams& params, const TokenHistory& history = {}) {
  const auto result = Sample(logits, params, history, 0, 0);
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code, Code::kInvalid);
  return result.error().message;
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

std::vector<double> Softmax(std::span<const float> logits, double temperature) {
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp(logit / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

// Draws many tokens and compares with `expected` (0: never drawn) by chi-square at 0.1 %.
void ExpectDistribution(std::span<const float> logits, const SamplingParams& params, std::vector<double> expected) {
  constexpr int kDraws = 20000;
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(MustSample(logits, params, i).token)];
  double chi2 = 0;
  int cells = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double mean = kDraws * expected[i] / sum;
    if (mean == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
      continue;
    }
    ASSERT_GT(mean, 5) << "the test is too coarse for token " << i;
    chi2 += (counts[i] - mean) * (counts[i] - mean) / mean;
    ++cells;
  }
  // Wilson and Hilferty: the 99.9 % point of chi-square with d degrees of freedom.
  const double d = cells - 1;
  if (d > 0) {
    EXPECT_LT(chi2, d * std::pow(1 - 2 / (9 * d) + 3.09 * std::sqrt(2 / (9 * d)), 3));
  }
}

const std::vector<float> kLogits = {1.0F, 2.5F, 0.0F, 2.5F, -1.0F, 1.75F, -0.5F, 0.25F};

// The descending order of kLogits, ties by id.
const std::vector<size_t> kOrder = {1, 3, 5, 0, 7, 2, 6, 4};

std::vector<double> FirstOf(std::vector<double> p, size_t keep) {
  for (size_t rank = keep; rank < kOrder.size(); ++rank) p[kOrder[rank]] = 0;
  return p;
}

TEST(IsRuled, WhatNeedsNothingButRawLogits) {
  SamplingParams params;
  EXPECT_TRUE(IsRuled(params));
  params.temperature = 0;
  params.top_k = 3, params.top_p = 0.5, params.min_p = 0.1, params.seed = 7;
  EXPECT_TRUE(IsRuled(params));
  for (double SamplingParams::*penalty :
       {&SamplingParams::repetition_penalty, &SamplingParams::frequency_penalty, &SamplingParams::presence_penalty}) {
    SamplingParams one = params;
    one.*penalty = 1.5;
    EXPECT_FALSE(IsRuled(one));
  }
  params.logit_bias[3] = 0.5F;
  EXPECT_FALSE(IsRuled(params));
}

TEST(RuleOf, HasTheParametersAsIntegers) {
  SamplingParams params;
  params.seed = 7;
  const auto uniform = static_cast<uint64_t>(UniformDouble({7, 3, 11, 0}) * 0x1p53);
  EXPECT_EQ(RuleOf(params, 3, 11), (DrawRule{uniform, kDrawOne, 1, 0, 0, 0}));
  params.temperature = 0.5;
  params.top_k = 40;
  params.top_p = 0.75;
  params.min_p = 0.25;
  EXPECT_EQ(RuleOf(params, 3, 11), (DrawRule{uniform, kDrawOne / 4 * 3, 2, 1 << 28, 40, 0}));
  params.temperature = 1e300;
  params.top_k = -1;
  params.top_p = 1e-300;
  params.min_p = 1;
  EXPECT_EQ(RuleOf(params, 3, 11), (DrawRule{uniform, 1, 0, 1 << 30, 0, 0}));
  params.top_k = int64_t{1} << 40;
  EXPECT_EQ(RuleOf(params, 3, 11).top_k, std::numeric_limits<int32_t>::max());
  params.temperature = 9e-6;
  EXPECT_TRUE(RuleOf(params, 3, 11).TakesBest());
}

// The token that was found without the sampler is its own, and so is the refusal.
TEST(TokenOf, SaysWhatSampleSays) {
  SamplingParams params;
  params.temperature = 0;
  const std::vector<std::pair<std::vector<float>, TokenLogit>> cases = {
      {{1, 4, 2, 4}, {1, 4}},          {{-kInf, -kInf, -3}, {2, -3}}, {{-kInf, -kInf}, {0, -kInf}},
      {{1, 2, kInf, kNan}, {2, kInf}}, {{1, kNan, kInf}, {1, kNan}},
  };
  for (const auto& [logits, found] : cases) {
    const Result<SampleResult> sampled = Sample(logits, params, {}, 0, 0);
    const Result<TokenId> token = TokenOf(found, static_cast<int64_t>(logits.size()));
    ASSERT_EQ(token.ok(), sampled.ok());
    if (token.ok()) {
      EXPECT_EQ(*token, sampled->token);
    } else {
      EXPECT_EQ(token.error().code, sampled.error().code);
      EXPECT_EQ(token.error().message, sampled.error().message);
    }
  }
}

TEST(Greatest, IsTheLowestOfEquals) {
  for (const size_t size : {1, 15, 16, 17, 100, 1000}) {
    for (size_t first = 0; first < size; first += size / 7 + 1) {
      std::vector<float> logits(size, -3.0F);
      logits[first] = 2.0F;
      EXPECT_EQ(Greatest(logits), static_cast<TokenId>(first)) << size;
      logits.back() = 2.0F;
      EXPECT_EQ(Greatest(logits), static_cast<TokenId>(first)) << size;
    }
  }
  EXPECT_EQ(Greatest(std::vector<float>(20, -std::numeric_limits<float>::infinity())), 0);
}

TEST(Sample, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  EXPECT_EQ(MustSample(kLogits, Greedy()).token, 1);
  const std::vector<float> equal(5, -3.0F);
  EXPECT_EQ(MustSample(equal, Greedy()).token, 0);
  SamplingParams params;
  params.temperature = 9e-6;
  EXPECT_EQ(MustSample(kLogits, params).token, 1);
}

TEST(Sample, PlainDistribution) { ExpectDistribution(kLogits, {}, Softmax(kLogits, 1)); }

TEST(Sample, Temperature) {
  SamplingParams params;
  params.temperature = 1.7;
  ExpectDistribution(kLogits, params, Softmax(kLogits, 1.7));
}

TEST(Sample, TopKKeepsExactlyKWithTiesByLowerId) {
  SamplingParams params;
  for (const int64_t k : {1, 3, 5}) {
    params.top_k = k;
    ExpectDistribution(kLogits, params, FirstOf(Softmax(kLogits, 1), static_cast<size_t>(k)));
  }
}

TEST(Sample, TopPKeepsTheCrossingToken) {
  SamplingParams params;
  const std::vector<double> p = Softmax(kLogits, 1);
  double mass = 0;
  for (size_t keep = 1; keep <= 4; ++keep) {
    mass += p[kOrder[keep - 1]];
    params.top_p = mass - 1e-6;
    ExpectDistribution(kLogits, params, FirstOf(p, keep));
    params.top_p = mass + 1e-6;
    ExpectDistribution(kLogits, params, FirstOf(p, keep + 1));
  }
  params.top_p = 1e-12;
  ExpectDistribution(kLogits, params, FirstOf(p, 1));
}

TEST(Sample, MinP) {
  SamplingParams params;
  const std::vector<double> p = Softmax(kLogits, 1);
  params.min_p = p[5] / p[1] - 1e-6;
  ExpectDistribution(kLogits, params, FirstOf(p, 3));
  params.min_p = p[5] / p[1] + 1e-6;
  ExpectDistribution(kLogits, params, FirstOf(p, 2));
  params.min_p = 1;
  ExpectDistribution(kLogits, params, FirstOf(p, 2));
}

TEST(Sample, FiltersFollowTemperatureAndTopPSeesWhatTopKLeft) {
  SamplingParams params;
  params.temperature = 0.5;
  params.top_k = 3;
  const std::vector<double> three = FirstOf(Softmax(kLogits, 0.5), 3);
  const double sum = three[1] + three[3] + three[5];
  params.top_p = (three[1] + three[3]) / sum - 1e-6;
  ExpectDistribution(kLogits, params, FirstOf(three, 2));
  params.top_p = (three[1] + three[3]) / sum + 1e-6;
  ExpectDistribution(kLogits, params, three);
  params.top_p = 1;
  params.min_p = three[5] / three[1] + 1e-6;
  ExpectDistribution(kLogits, params, FirstOf(three, 2));
}

TEST(Sample, DependsOnSeedRequestAndPositionOnly) {
  const std::vector<float> flat(1000, 0.0F);
  SamplingParams params;
  params.seed = 5;
  const auto token = [&](uint64_t request, int64_t position) {
    return Sample(flat, params, {}, request, position)->token;
  };
  const TokenId first = token(1, 1);
  EXPECT_EQ(token(1, 1), first);
  EXPECT_NE(token(2, 1), first);
  EXPECT_NE(token(1, 2), first);
  params.seed = 6;
  EXPECT_NE(token(1, 1), first);
}

TEST(Sample, BiasIsAddedAndInfinityForbids) {
  SamplingParams params = Greedy();
  params.logit_bias = {{4, 3.75F}};
  EXPECT_EQ(MustSample(kLogits, params).token, 4);
  params.logit_bias = {{1, -kInf}, {3, -0.75F}};
  EXPECT_EQ(MustSample(kLogits, params).token, 3);  // equal to token 5, lower id
  params.temperature = 1;
  std::vector<double> expected = Softmax(kLogits, 1);
  expected[1] = 0;
  expected[3] *= std::exp(-0.75);
  ExpectDistribution(kLogits, params, expected);
}

// The value a token needs through bias to win against another one shows the processed logits by greedy choice.
bool Wins(std::vector<float> logits, SamplingParams params, const TokenHistory& history, float rival) {
  logits.push_back(rival);
  params.temperature = 0;
  return MustSample(logits, params, 0, history).token + 1 != static_cast<TokenId>(logits.size());
}

TEST(Sample, AMaskForbidsWhatItLacks) {
  std::vector<float> logits(130);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 70);
  const auto token = [&](std::vector<uint64_t> mask) { return Sample(logits, Greedy(), {}, 0, 0, mask)->token; };
  EXPECT_EQ(token({}), 69);
  EXPECT_EQ(token({0b1011, 0}), 3);
  EXPECT_EQ(token({1, 1, 2}), 64);
  EXPECT_EQ(token({1}), 0);  // what it does not reach is forbidden
  EXPECT_FALSE(Sample(logits, Greedy(), {}, 0, 0, std::vector<uint64_t>{0, 0, 0}).ok());
  // Log-probabilities stay those of the raw logits.
  SamplingParams params = Greedy();
  params.logprobs = 1;
  const SampleResult result = *Sample(logits, params, {}, 0, 0, std::vector<uint64_t>{1});
  EXPECT_EQ(result.top[0].first, 69);
}

TEST(Sample, PenaltiesByHand) {
  TokenHistory history;
  history.AddPrompt(std::vector<TokenId>{0, 1});
  history.AddOutput(1);
  history.AddOutput(1);
  history.AddOutput(2);
  SamplingParams params;
  const auto expect = [&](std::vector<float> logits, float processed) {
    EXPECT_TRUE(Wins(logits, params, history, processed - 0.001F)) << processed;
    EXPECT_FALSE(Wins(logits, params, history, processed + 0.001F)) << processed;
  };
  params.repetition_penalty = 2;
  expect({6, -50, -50, -50}, 3);    // positive: divided
  expect({-50, 6, -50, -50}, 3);    // once for prompt and output together
  expect({-50, -50, -50, 6}, 6);    // never seen
  expect({-3, -50, -50, -50}, -6);  // negative: multiplied
  params.frequency_penalty = 0.5;
  params.presence_penalty = 0.25;
  expect({6, -50, -50, -50}, 3);                     // only in the prompt
  expect({-50, 6, -50, -50}, 3 - 2 * 0.5F - 0.25F);  // twice in the output
  expect({-50, -50, 6, -50}, 3 - 0.5F - 0.25F);
  params.logit_bias = {{2, 2.0F}};
  expect({-50, -50, 6, -50}, 4 - 0.5F - 0.25F);  // bias comes before penalties
}

TEST(Logprobs, OfAGivenToken) {
  const std::vector<double> p = Softmax(kLogits, 1);
  const SampleResult worst = Logprobs(kLogits, static_cast<TokenId>(kOrder.back()), 1);
  EXPECT_EQ(worst.token, static_cast<TokenId>(kOrder.back()));
  EXPECT_NEAR(worst.logprob, std::log(p[kOrder.back()]), 1e-6);
  ASSERT_EQ(worst.top.size(), 1U);
  EXPECT_EQ(worst.top[0].first, static_cast<TokenId>(kOrder[0]));
}

TEST(Sample, LogprobsAreOfTheRawLogits) {
  SamplingParams params = Greedy();
  params.logit_bias = {{2, 50.0F}};
  params.logprobs = 3;
  const SampleResult result = MustSample(kLogits, params);
  EXPECT_EQ(result.token, 2);
  const std::vector<double> p = Softmax(kLogits, 1);
  EXPECT_NEAR(result.logprob, std::log(p[2]), 1e-6);
  ASSERT_EQ(result.top.size(), 3u);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(result.top[rank].first, static_cast<TokenId>(kOrder[rank]));
    EXPECT_NEAR(result.top[rank].second, std::log(p[kOrder[rank]]), 1e-6);
  }
  params.logprobs = 100;
  EXPECT_EQ(MustSample(kLogits, params).top.size(), kLogits.size());
  params.logprobs = -1;
  EXPECT_EQ(MustSample(kLogits, params).logprob, 0);
  EXPECT_TRUE(MustSample(kLogits, params).top.empty());
}

TEST(Sample, BrokenLogitsAreAnError) {
  for (const bool greedy : {false, true}) {
    const SamplingParams params = greedy ? Greedy() : SamplingParams{};
    EXPECT_THAT(ErrorOf(std::vector<float>{1, kNan, 2}, params), HasSubstr("found NaN at token 1 of 3"));
    EXPECT_THAT(ErrorOf(std::vector<float>{1, 2, kInf}, params), HasSubstr("found infinity at token 2 of 3"));
    EXPECT_THAT(ErrorOf(std::vector<float>{-kInf, -kInf}, params), HasSubstr("none of 2"));
    EXPECT_THAT(ErrorOf({}, params), HasSubstr("none of 0"));
  }
  EXPECT_EQ(MustSample(std::vector<float>{-kInf, -2, -kInf}, {}).token, 1);
}

TEST(Sample, BrokenLogitsAreFoundWhereverTheyAre) {
  for (size_t size : {1, 15, 16, 17, 40}) {
    for (size_t at = 0; at < size; ++at) {
      for (const float broken : {kNan, -kNan, kInf}) {
        std::vector<float> logits(size, -1.5F);
        logits[at] = broken;
        EXPECT_THAT(ErrorOf(logits, Greedy()), HasSubstr(fmt::format("at token {} of {}", at, size)));
      }
    }
  }
}

TEST(Sample, OverflowOfAPenaltyIsAnError) {
  SamplingParams params;
  params.repetition_penalty = 0.01;
  TokenHistory history;
  history.AddOutput(0);
  EXPECT_THAT(ErrorOf(std::vector<float>{3e38F, 1}, params, history), HasSubstr("infinity"));
}

TEST(Sample, IdsOutsideTheVocabularyAreAnError) {
  SamplingParams params;
  params.logit_bias = {{8, 1.0F}};
  EXPECT_THAT(ErrorOf(kLogits, params), HasSubstr("logit_bias: expected token ids in [0, 8), found 8"));
  params.logit_bias.clear();
  params.presence_penalty = 1;
  TokenHistory history;
  history.AddPrompt(std::vector<TokenId>{-1});
  EXPECT_THAT(ErrorOf(kLogits, params, history), HasSubstr("token history"));
}

TEST(Sample, ExtremeValuesStayDefined) {
  const std::vector<float> wide = {-3e38F, 3e38F, 0, 3e38F};
  SamplingParams params;
  params.logprobs = 4;
  for (const double temperature : {1e-5, 1.0, 1e300}) {
    params.temperature = temperature;
    const TokenId token = MustSample(wide, params).token;
    EXPECT_TRUE(temperature > 1 || token == 1 || token == 3);
  }
}

TEST(Validate, NamesTheParameter) {
  EXPECT_TRUE(Validate({}).ok());
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    const Status status = Validate(params);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_THAT(message([](auto& p) { p.temperature = -0.1; }),
              HasSubstr("temperature: expected a number of at least 0, found -0.1"));
  EXPECT_THAT(message([](auto& p) { p.temperature = NAN; }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& p) { p.temperature = INFINITY; }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& p) { p.top_k = -2; }), HasSubstr("top_k"));
  EXPECT_EQ(message([](auto& p) { p.top_k = -1; }), "");
  EXPECT_THAT(message([](auto& p) { p.top_p = 0; }), HasSubstr("top_p: expected above 0 and at most 1, found 0"));
  EXPECT_THAT(message([](auto& p) { p.top_p = 1.01; }), HasSubstr("top_p"));
  EXPECT_THAT(message([](auto& p) { p.min_p = NAN; }), HasSubstr("min_p"));
  EXPECT_THAT(message([](auto& p) { p.repetition_penalty = 0; }), HasSubstr("repetition_penalty"));
  EXPECT_THAT(message([](auto& p) { p.frequency_penalty = 2.1; }), HasSubstr("frequency_penalty"));
  EXPECT_THAT(message([](auto& p) { p.presence_penalty = NAN; }), HasSubstr("presence_penalty"));
  EXPECT_THAT(message([](auto& p) { p.logprobs = -2; }), HasSubstr("logprobs"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{3, 101.0F}}; }), HasSubstr("found 101 for token 3"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{3, kInf}}; }), HasSubstr("logit_bias"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias = {{-3, 1.0F}}; }), HasSubstr("logit_bias"));
  SamplingParams params;
  params.top_p = 2;
  EXPECT_THAT(ErrorOf(kLogits, params), HasSubstr("top_p"));
}

// All filters by one full sort, for comparison.
TokenId ByFullSort(std::span<const float> logits, const SamplingParams& params, double uniform) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const double best = logits[order[0]];
  const auto weight = [&](size_t token) { return std::exp((logits[token] - best) / params.temperature); };
  std::erase_if(order, [&](size_t token) { return weight(token) < params.min_p; });
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  std::vector<size_t> kept = order;
  std::sort(kept.begin(), kept.end());
  double total = 0, mass = 0;
  for (const size_t token : kept) total += weight(token);
  for (size_t i = 0; i < order.size() && params.top_p < 1; ++i) {
    mass += weight(order[i]);
    if (mass >= params.top_p * total) order.resize(i + 1);
  }
  std::sort(order.begin(), order.end());
  total = mass = 0;
  for (const size_t token : order) total += weight(token);
  for (const size_t token : order) {
    mass += weight(token);
    if (mass > uniform * total) return static_cast<TokenId>(token);
  }
  return -1;
}

TEST(Sample, FastSelectionAgreesWithAFullSort) {
  std::mt19937 random(3);
  for (const size_t vocabulary : {40u, 3000u, 60000u}) {
    std::vector<float> logits(vocabulary);
    for (float& logit : logits) logit = static_cast<float>(random() % 64) / 8;  // many ties
    for (const int64_t k : {0, 1, 20, 1024, 1025, 2999}) {
      for (const double p : {1.0, 0.99, 0.3, 0.001}) {
        SamplingParams params;
        params.top_k = k;
        params.top_p = p;
        params.min_p = k == 20 ? 0.2 : 0.0;
        params.seed = random();
        const double uniform = UniformDouble({params.seed, 0, 0, 0});
        ASSERT_EQ(MustSample(logits, params).token, ByFullSort(logits, params, uniform)) << k << " " << p;
      }
    }
  }
}

}  // namespace
}  // namespace trivet::sampling
