// SPDX-License-Identifier: Apache-2.0
#include "kernels/token_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/reference.h"
#include "tests/kernels/packed.h"

namespace trivet::kernels {

void CompareEmbed(RowLog* log) {
  std::mt19937_64 random(71);
  for (const WeightFormatRow& format : Formats()) {
    for (const int64_t hidden : {1, 17, 64, 300}) {
      const Packed table({FormatOn(log->backend(), format.format), 40, hidden, 64}, &random);
      const std::vector<int32_t> tokens = {0, 99, 100, 131, 132, 138, 139, 500};
      log->Compare<Embed>("hidden " + std::to_string(hidden), [&](const KernelRow<Embed>& row, Outputs* outputs) {
        Guarded<float> x(8 * hidden, 1);
        row.run({&table.matrix(), 100, 39, tokens.data(), x.data(), 0, 3});
        row.run({&table.matrix(), 100, 39, tokens.data(), x.data(), 3, 8});
        outputs->Take(x);
      });
    }
  }
}

void CompareRope(RowLog* log) {
  std::mt19937_64 random(72);
  for (const int64_t half : {1, 8, 13, 32, 128}) {
    const int64_t head_stride = 2 * half + 3, stride = 3 * head_stride + 1;
    const std::vector<float> x = RandomValues(4 * stride, &random), cos = RandomValues(4 * half, &random),
                             sin = RandomValues(4 * half, &random);
    log->Compare<Rope>("half " + std::to_string(half), [&](const KernelRow<Rope>& row, Outputs* outputs) {
      Guarded<float> y(4 * stride, 1);
      std::copy(x.begin(), x.end(), y.data());
      row.run({y.data(), stride, head_stride, 3, half, cos.data(), sin.data(), 1, 4});
      outputs->Take(y);
    });
  }
}

void CompareRoute(RowLog* log) {
  std::mt19937_64 random(73);
  for (const int64_t experts : {1, 5, 32, 131, 256}) {
    const int64_t top_k = std::min<int64_t>(experts, 8);
    std::vector<float> logits = RandomValues(9 * (experts + 2), &random, 3);
    for (float& logit : logits) logit = std::round(logit);  // many ties
    const std::vector<float> correction = RandomValues(experts, &random);
    const std::vector<int32_t> slot_of = Shuffled(experts, &random);
    for (int form = 0; form < 24; ++form) {
      log->Compare<Route>("experts " + std::to_string(experts) + ", form " + std::to_string(form),
                          [&](const KernelRow<Route>& row, Outputs* outputs) {
                            Guarded<int32_t> chosen(9 * top_k, 1);
                            Guarded<float> weights(9 * top_k, 1);
                            Route::Args args{logits.data(), experts + 2,    experts, top_k,
                                             chosen.data(), weights.data(), 0,       9};
                            args.kind = static_cast<RouterKind>(form % 3);
                            args.correction = form % 2 == 0 ? correction.data() : nullptr;
                            args.renormalise = form % 4 < 2;
                            args.scaling = form < 12 ? 1.0F : 2.5F;
                            if (form % 5 == 0) args.slot_of = slot_of.data();
                            if (experts % 8 == 0 && form >= 6) args.groups = 8, args.groups_kept = 1 + form % 4;
                            row.run(args);
                            outputs->Take(chosen);
                            outputs->Take(weights);
                          });
    }
  }
}

void CompareAddBias(RowLog* log) {
  std::mt19937_64 random(77);
  for (const int64_t n : {1, 31, 100, 7168}) {
    const std::vector<float> x = RandomValues(3 * (n + 2), &random), bias = RandomValues(n, &random);
    log->Compare<AddBias>(std::to_string(n), [&](const KernelRow<AddBias>& row, Outputs* outputs) {
      Guarded<float> y(3 * (n + 2), 1);
      std::copy(x.begin(), x.end(), y.data());
      row.run({y.data(), n + 2, bias.data(), n, 0, 3});
      outputs->Take(y);
    });
    const std::vector<float> biases = RandomValues(5 * n, &random);
    const std::vector<int32_t> rows = {4, -1, 2};
    log->Compare<AddBias>(std::to_string(n) + ", rows", [&](const KernelRow<AddBias>& row, Outputs* outputs) {
      Guarded<float> y(3 * (n + 2), 1);
      std::copy(x.begin(), x.end(), y.data());
      row.run({y.data(), n + 2, biases.data(), n, 0, 3, rows.data()});
      outputs->Take(y);
    });
  }
}

void CompareAddSums(RowLog* log) {
  std::mt19937_64 random(74);
  for (const int64_t count : {1, 63, 1000}) {
    std::vector<int64_t> fixed(static_cast<size_t>(count));
    for (int64_t& sum : fixed) sum = static_cast<int64_t>(random()) >> (random() % 40);
    const std::vector<float> x = RandomValues(count, &random), fast = RandomValues(count, &random);
    for (const bool exact : {true, false}) {
      log->Compare<AddSums>(std::to_string(count), [&](const KernelRow<AddSums>& row, Outputs* outputs) {
        Guarded<float> y(count, 1);
        std::copy(x.begin(), x.end(), y.data());
        row.run({y.data(), exact ? fixed.data() : nullptr, exact ? nullptr : fast.data(), 0, count / 2});
        row.run({y.data(), exact ? fixed.data() : nullptr, exact ? nullptr : fast.data(), count / 2, count});
        outputs->Take(y);
      });
    }
  }
}

void CompareRoundSums(RowLog* log) {
  std::mt19937_64 random(75);
  for (const int64_t count : {1, 63, 1000}) {
    std::vector<int64_t> fixed(static_cast<size_t>(count));
    for (int64_t& sum : fixed) sum = static_cast<int64_t>(random()) >> (random() % 64);
    log->Compare<RoundSums>(std::to_string(count), [&](const KernelRow<RoundSums>& row, Outputs* outputs) {
      Guarded<int64_t> sums(count, 1);
      Guarded<float> y(count, 1);
      std::copy(fixed.begin(), fixed.end(), sums.data());
      std::fill_n(y.data(), count, -1.0F);
      row.run({sums.data(), y.data(), 0, count / 2});
      row.run({sums.data(), y.data(), count / 2, count - 1});  // the last sum stays as it is
      outputs->Take(sums);
      outputs->Take(y);
    });
  }
}

TEST(RoundSums, LeavesWhatARankAddsAndZeros) {
  int64_t sums[] = {int64_t{3} << 29, -(int64_t{1} << 30), (int64_t{1} << 54) + 1};
  float y[3] = {};
  RoundSumsRef({sums, y, 0, 3});
  EXPECT_THAT(y, testing::ElementsAre(1.5F, -1.0F, 0x1p24F));
  EXPECT_THAT(sums, testing::ElementsAre(0, 0, 0));
}

// The property that makes the vocabulary's cut invisible: one rank writes a token's row, the others write zeros.
void CompareMap(RowLog* log) {
  std::mt19937_64 random(84);
  for (const MapFunction function : {MapFunction::kScale, MapFunction::kSigmoid, MapFunction::kSoftCap}) {
    for (const int64_t stride : {1, 7}) {
      const std::vector<float> x = RandomValues(300 * stride, &random, 40);
      log->Compare<Map>("stride=" + std::to_string(stride), [&](const KernelRow<Map>& row, Outputs* outputs) {
        Guarded<float> y(300);
        std::fill_n(y.data(), 300, 9.0F);
        row.run({function, 30, x.data(), stride, y.data(), 3, 299});
        outputs->Take(y);
      });
    }
  }
}

void CompareCopyRows(RowLog* log) {
  std::mt19937_64 random(85);
  for (const int64_t n : {1, 5, 128, 1000}) {
    const std::vector<float> x = RandomValues(12 * (n + 3), &random);
    const std::vector<int32_t> picked{11, 0, 3, 3, 7, 8};
    for (const bool pick : {false, true}) {
      log->Compare<CopyRows>("n=" + std::to_string(n), [&](const KernelRow<CopyRows>& row, Outputs* outputs) {
        Guarded<float> y(6 * (n + 1));
        std::fill_n(y.data(), y.size(), 9.0F);
        row.run({x.data(),
                 {2, 2 * (n + 3), n + 3},
                 y.data(),
                 {3, 3 * (n + 1), n + 1},
                 n,
                 pick ? picked.data() : nullptr,
                 1,
                 6});
        outputs->Take(y);
      });
    }
  }
}

TEST(Embed, ExactlyOneRankWritesEachToken) {
  std::mt19937_64 random(75);
  constexpr int64_t kVocab = 70, kHidden = 5;
  const Packed whole({WeightFormat::kBF16, kVocab, kHidden, 64}, &random);
  std::vector<int32_t> tokens(kVocab);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<float> expected(kVocab * kHidden);
  EmbedRef({&whole.matrix(), 0, kVocab, tokens.data(), expected.data(), 0, kVocab});
  EXPECT_EQ(expected, whole.values());

  std::vector<uint32_t> sum(expected.size(), 0);
  for (const auto& [begin, end] : {std::pair{0, 33}, {33, 34}, {34, 70}}) {
    std::vector<float> values(whole.values().begin() + begin * kHidden, whole.values().begin() + end * kHidden);
    values.resize(values.size() + 3 * kHidden, 77.0F);  // pad rows that no token may read
    const Packed part({WeightFormat::kBF16, end - begin + 3, kHidden, 64}, std::move(values));
    std::vector<float> x(expected.size());
    EmbedRef({&part.matrix(), begin, end - begin, tokens.data(), x.data(), 0, kVocab});
    for (size_t i = 0; i < x.size(); ++i) sum[i] += std::bit_cast<uint32_t>(x[i]);
  }
  EXPECT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * 4), 0);
}

TEST(Rope, RotatesPairsOfTheFirstChannelsOnly) {
  // One token, two heads of five channels, two pairs.
  float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const float cos[] = {0.0F, 0.6F}, sin[] = {1.0F, 0.8F};
  RopeRef({x, 11, 5, 2, 2, cos, sin, 0, 1});
  const float expected[] = {
      -3, 2 * 0.6F - 4 * 0.8F, 1, 4 * 0.6F + 2 * 0.8F, 5, -8, 7 * 0.6F - 9 * 0.8F, 6, 9 * 0.6F + 7 * 0.8F, 10, 11};
  for (size_t i = 0; i < std::size(x); ++i) EXPECT_EQ(x[i], expected[i]) << i;
}

TEST(Route, TiesGoToTheLowerExpertAndWeightsSumToOne) {
  const float logits[] = {1, 3, 2, 3, -5, 3, 2};
  int32_t experts[4];
  float weights[4];
  RouteRef({logits, 7, 7, 4, experts, weights, 0, 1});
  EXPECT_EQ(std::vector(experts, experts + 4), (std::vector<int32_t>{1, 3, 5, 2}));
  const double rest = std::exp(-1.0), sum = 3 + rest;
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(weights[i], 1 / sum, 1e-7);
  EXPECT_NEAR(weights[3], rest / sum, 1e-7);
}

TEST(Route, TheRecordHasIdsScoresAndTheBestThatWasNotChosen) {
  const float logits[] = {1, 3, 2, 3, -5, 3, 2}, correction[] = {0, 0, 9, 0, 0, 0, 0};
  const int32_t slot_of[] = {-1, 4, -1, -1, -1, 0, 2};
  int32_t slots[4], experts[4];
  float weights[4], scores[4], choice[5];
  Route::Args args{logits, 7, 7, 4, slots, weights, 0, 1};
  args.slot_of = slot_of;
  args.record = {experts, scores, choice};
  RouteRef(args);
  EXPECT_EQ(std::vector(experts, experts + 4), (std::vector<int32_t>{1, 3, 5, 2}));
  EXPECT_EQ(std::vector(slots, slots + 4), (std::vector<int32_t>{4, -1, 0, -1}));
  EXPECT_EQ(std::vector(scores, scores + 4), (std::vector<float>{3, 3, 3, 2}));
  EXPECT_EQ(std::vector(choice, choice + 5), (std::vector<float>{3, 3, 3, 2, 2}));
  args.kind = RouterKind::kSigmoid;
  args.correction = correction;
  RouteRef(args);
  EXPECT_EQ(std::vector(experts, experts + 4), (std::vector<int32_t>{2, 1, 3, 5}));
  EXPECT_EQ(choice[0], scores[0] + 9);
  EXPECT_EQ(choice[4], Sigmoid<ScalarOps>(2.0F));
  // Without one that was not chosen.
  float all[7], more[8];
  int32_t every[7], unused[7];
  float unused_weights[7];
  args = {logits, 7, 7, 7, unused, unused_weights, 0, 1};
  args.record = {every, all, more};
  RouteRef(args);
  EXPECT_EQ(more[7], -std::numeric_limits<float>::infinity());
}

// Two rows: the first one's experts come from elsewhere.
TEST(Route, ForcedExpertsStandInTheOrderOfTheirValues) {
  const float logits[] = {1, 3, 2, 3, -5, 3, 2, 1, 3, 2, 3, -5, 3, 2};
  const int32_t forced[] = {4, 6, 3, -1, 0, 0};
  int32_t slots[6], experts[6], other[2] = {7, 7};
  float weights[6], own[6], scores[6], choice[8];
  for (const RouterKind kind : {RouterKind::kSoftmaxChosen, RouterKind::kSoftmaxAll, RouterKind::kSigmoid}) {
    Route::Args args{logits, 7, 7, 3, slots, own, 0, 2};
    args.kind = kind;
    RouteRef(args);
    args.weights = weights;
    args.record = {experts, scores, choice};
    args.forced = forced;
    args.other = other;
    RouteRef(args);
    EXPECT_EQ(std::vector(experts, experts + 6), (std::vector<int32_t>{3, 6, 4, 1, 3, 5}));
    EXPECT_EQ(std::vector(other, other + 2), (std::vector<int32_t>{1, 0}));
    EXPECT_GT(weights[0], weights[1]);
    EXPECT_GT(weights[1], weights[2]);
    EXPECT_EQ(std::vector(weights + 3, weights + 6), std::vector(own + 3, own + 6)) << "the free row is as without";
    EXPECT_GT(choice[3], choice[2]) << "the best that was left out is ahead of what was forced";
    EXPECT_EQ(choice[3], choice[0]) << "expert 1 ties with 3";
  }
}

// In any order, the own choice gives the own bits.
TEST(Route, ForcingTheOwnChoiceChangesNoByte) {
  std::vector<float> logits(64);
  uint32_t state = 7;
  for (float& value : logits) value = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / 3e6F;
  for (const RouterKind kind : {RouterKind::kSoftmaxChosen, RouterKind::kSoftmaxAll, RouterKind::kSigmoid}) {
    int32_t own[8], again[8], other[2];
    float weights[8], repeated[8];
    Route::Args args{logits.data(), 32, 32, 4, own, weights, 0, 2};
    args.kind = kind;
    RouteRef(args);
    const int32_t forced[] = {own[3], own[1], own[0], own[2], own[7], own[6], own[5], own[4]};
    args.experts = again;
    args.weights = repeated;
    args.forced = forced;
    args.other = other;
    RouteRef(args);
    EXPECT_EQ(std::vector(again, again + 8), std::vector(own, own + 8));
    EXPECT_EQ(std::memcmp(weights, repeated, sizeof(weights)), 0);
    EXPECT_EQ(other[0] + other[1], 0);
  }
}

TEST(Route, EqualsASortForRandomLogits) {
  std::mt19937_64 random(76);
  for (int round = 0; round < 300; ++round) {
    const int64_t total = 1 + static_cast<int64_t>(random() % 40);
    const int64_t top_k = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(total));
    std::vector<float> logits = RandomValues(total, &random, 4);
    for (float& logit : logits) logit = std::round(logit);
    std::vector<int32_t> order(static_cast<size_t>(total)), experts(static_cast<size_t>(top_k));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    std::vector<float> weights(experts.size());
    RouteRef({logits.data(), total, total, top_k, experts.data(), weights.data(), 0, 1});
    order.resize(experts.size());
    ASSERT_EQ(experts, order);
    ASSERT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1.0, 1e-5);
  }
}

TEST(Route, NonFiniteLogitsStillNameDistinctExperts) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits : {std::vector<float>{kNaN, kNaN, kNaN, kNaN}, {1, kNaN, kInf, -kInf}}) {
    int32_t experts[3];
    float weights[3];
    RouteRef({logits.data(), 4, 4, 3, experts, weights, 0, 1});
    EXPECT_EQ(std::set<int32_t>(experts, experts + 3).size(), 3U);
    for (const int32_t expert : experts) EXPECT_TRUE(expert >= 0 && expert < 4);
  }
}

TEST(Route, WeightsOverAllExpertsAreNotRenormalised) {
  const float logits[] = {1, 3, 2};
  int32_t experts[2];
  float weights[2];
  Route::Args args{logits, 3, 3, 2, experts, weights, 0, 1};
  args.kind = RouterKind::kSoftmaxAll;
  RouteRef(args);
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  EXPECT_EQ(std::vector(experts, experts + 2), (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(weights[0], std::exp(3.0) / sum, 1e-6);
  EXPECT_NEAR(weights[1], std::exp(2.0) / sum, 1e-6);
}

TEST(Route, SigmoidsAreChosenWithACorrectionAndWeighWithoutIt) {
  const float logits[] = {2, 0, 1, -1}, correction[] = {0, 0, -5, 1};
  int32_t experts[2];
  float weights[2];
  Route::Args args{logits, 4, 4, 2, experts, weights, 0, 1};
  args.kind = RouterKind::kSigmoid;
  args.correction = correction;
  args.scaling = 2.5F;
  RouteRef(args);
  const double first = 1 / (1 + std::exp(1.0)), second = 1 / (1 + std::exp(-2.0));
  EXPECT_EQ(std::vector(experts, experts + 2), (std::vector<int32_t>{3, 0}));
  EXPECT_NEAR(weights[0], 2.5 * first / (first + second), 1e-6);
  EXPECT_NEAR(weights[1], 2.5 * second / (first + second), 1e-6);
  args.renormalise = false;
  RouteRef(args);
  EXPECT_NEAR(weights[0], 2.5 * first, 1e-6);
}

TEST(Route, OnlyExpertsOfTheBestGroupsAreEligible) {
  // Groups of three by their two best: 4 + 3, 5 - 9, 2 + 2; the best single expert is in a group that is left out.
  const float logits[] = {4, 3, -9, 5, -9, -9, 2, 2, 2};
  int32_t experts[4];
  float weights[4];
  Route::Args args{logits, 9, 9, 4, experts, weights, 0, 1};
  args.kind = RouterKind::kSigmoid;
  args.groups = 3;
  args.groups_kept = 2;
  RouteRef(args);
  EXPECT_EQ(std::vector(experts, experts + 4), (std::vector<int32_t>{0, 1, 6, 7}));
}

TEST(AddBias, LeavesWhatLiesBetweenRows) {
  float x[] = {1, 2, 9, 3, 4, 9};
  const float bias[] = {10, 20};
  AddBiasRef({x, 3, bias, 2, 1, 2});
  EXPECT_EQ(std::vector(x, x + 6), (std::vector<float>{1, 2, 9, 13, 24, 9}));
}

TEST(AddBias, PicksARowOfTheBias) {
  float x[] = {1, 2, 3, 4, 5, 6};
  const float bias[] = {10, 20, 30, 40};
  const int32_t rows[] = {1, -1, 0};
  AddBiasRef({x, 2, bias, 2, 0, 3, rows});
  EXPECT_EQ(std::vector(x, x + 6), (std::vector<float>{31, 42, 3, 4, 15, 26}));
}

TEST(Route, NamesSlotsWhereExpertsHaveThem) {
  const float logits[] = {1, 3, 2};
  const int32_t slot_of[] = {0, -1, 1};
  int32_t slots[2];
  float weights[2];
  Route::Args args{logits, 3, 3, 2, slots, weights, 0, 1};
  args.slot_of = slot_of;
  for (const RouterKind kind : {RouterKind::kSoftmaxChosen, RouterKind::kSigmoid}) {
    args.kind = kind;
    RouteRef(args);
    EXPECT_EQ(std::vector(slots, slots + 2), (std::vector<int32_t>{-1, 1}));
  }
}

TEST(AddSums, AddsTheValueOfTheGridSum) {
  float x[] = {1.0F, -2.0F};
  const int64_t fixed[] = {int64_t{1} << 29, -(int64_t{3} << 30)};
  AddSumsRef({x, fixed, nullptr, 0, 2});
  EXPECT_EQ(x[0], 1.5F);
  EXPECT_EQ(x[1], -5.0F);
  const float fast[] = {0.25F, 1.0F};
  AddSumsRef({x, nullptr, fast, 1, 2});
  EXPECT_EQ(x[0], 1.5F);
  EXPECT_EQ(x[1], -4.0F);
}

}  // namespace trivet::kernels
