// SPDX-License-Identifier: Apache-2.0
#include "model/runtime.h"

#include <gtest/gtest.h>

#include "tests/model/rank_fixture.h"

namespace trivet::model {
namespace {

const plan::Geometry& Small() {
  static const plan::Geometry geometry = SmallGeometry();
  return geometry;
}

TEST(Runtime, ParallelCoversEveryItemOnce) {
  const RankFixture rank(Small(), MakeLayout(Small(), 1), {});
  for (const int64_t count : {0, 1, 7, 1000}) {
    for (const int64_t work : {int64_t{0}, int64_t{1} << 20, int64_t{1} << 40}) {
      std::vector<int> seen(static_cast<size_t>(count));
      rank.runtime().Parallel(count, work, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(count), 1));
    }
  }
}

// A rank that computes for long must show progress in time, or the others take it for hung.
TEST(Runtime, LongWorkShowsProgress) {
  RankFixture rank(Small(), MakeLayout(Small(), 1), {});
  const auto signs = [&](int64_t work) {
    const uint32_t before = rank.group().progress(0).load();
    rank.runtime().Parallel(100000, work, [](int64_t, int64_t) {});
    return rank.group().progress(0).load() - before;
  };
  EXPECT_EQ(signs(1), 1U);
  // The slowest row computes about 2^27.5 multiply-adds a second.
  EXPECT_GE(signs(int64_t{1} << 40), uint32_t{1} << 13);
}

TEST(Runtime, AddResidualAddsTheGridAndLogsTheSite) {
  const RankFixture rank(Small(), MakeLayout(Small(), 1), {.tokens = 2, .log = true});
  rank.runtime().log->BeginStep({{5, 0, 0, 1, 0}, {record::kPadding, 0, 1, 1, 0}}, {});
  const Sums sums = rank.runtime().NewSums(2);
  ASSERT_EQ(sums.fixed.size(), static_cast<size_t>(2 * Small().hidden));
  EXPECT_TRUE(sums.fast.empty());
  std::vector<float> x(sums.fixed.size(), 1.0F);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(sums.fixed[i], 0);
    sums.fixed[i] = static_cast<int64_t>(i) << kernels::kGridBits;
  }
  ASSERT_TRUE(rank.runtime().AddResidual({record::Site::kMixer, 3, true, nullptr}, sums, x, {}).ok());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], 1.0F + static_cast<float>(i));
  // One of the two rows is padding.
  ASSERT_EQ(rank.runtime().log->bounds().size(), 1U);
  const record::BoundRecord& bound = rank.runtime().log->bounds()[0];
  EXPECT_EQ(bound.token, 5);
  EXPECT_EQ(bound.site, record::Site::kMixer);
  EXPECT_EQ(bound.layer, 3);
  EXPECT_EQ(bound.digest, Hash128(std::as_bytes(std::span<const float>(x).first(x.size() / 2))));
  ASSERT_EQ(rank.runtime().log->collectives().size(), 1U);
  EXPECT_EQ(rank.runtime().log->collectives().begin()->first.kind, "none");
}

// How ranks add what each of them added as integers.
class RuntimeSums : public testing::TestWithParam<bool> {};

TEST_P(RuntimeSums, ABranchWithANormIsNormalisedBeforeItIsAdded) {
  const RankFixture rank(Small(), MakeLayout(Small(), 1), {.tokens = 2, .adds_floats = GetParam()});
  const Sums sums = rank.runtime().NewSums(2);
  std::vector<float> total(sums.fixed.size()), x(total.size(), 1.0F), normed(total.size());
  for (size_t i = 0; i < total.size(); ++i) {
    sums.fixed[i] = static_cast<int64_t>(i) << kernels::kGridBits;
    total[i] = static_cast<float>(i);
  }
  rank.runtime().Norm(total, rank.weights().final_norm, normed);
  const float* const weight = rank.weights().final_norm;
  std::vector<float> next(x.size()), expected(x.size());
  ASSERT_TRUE(rank.runtime().AddResidual({record::Site::kMixer, 3, true, weight}, sums, x, {weight, next}).ok());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], 1.0F + normed[i]);
  rank.runtime().Norm(x, weight, expected);
  EXPECT_EQ(next, expected);
  for (const int64_t sum : sums.fixed) EXPECT_EQ(sum, 0);
}

TEST_P(RuntimeSums, TheEndOfABranchBeginsTheNext) {
  const RankFixture rank(Small(), MakeLayout(Small(), 1), {.tokens = 2, .adds_floats = GetParam()});
  const Sums sums = rank.runtime().NewSums(2);
  std::vector<float> x(sums.fixed.size(), 1.0F), next(x.size()), expected(x.size());
  const float* const weight = rank.weights().final_norm;
  for (const float before : {1.0F, 2.0F}) {  // the second branch takes the same sums
    for (size_t i = 0; i < x.size(); ++i) x[i] = before, sums.fixed[i] += static_cast<int64_t>(i) << kernels::kGridBits;
    ASSERT_TRUE(rank.runtime().AddResidual({record::Site::kMixer, 3, true, nullptr}, sums, x, {weight, next}).ok());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], before + static_cast<float>(i));
    rank.runtime().Norm(x, weight, expected);
    EXPECT_EQ(next, expected);
    for (const int64_t sum : sums.fixed) EXPECT_EQ(sum, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RuntimeSums, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Floats" : "Integers"); });

TEST(Runtime, NormIsRowByRow) {
  const RankFixture rank(Small(), MakeLayout(Small(), 1), {});
  const std::vector<float> x = Activations(3, Small().hidden);
  std::vector<float> all(x.size()), one(static_cast<size_t>(Small().hidden));
  rank.runtime().Norm(x, rank.weights().final_norm, all);
  rank.runtime().Norm(std::span(x).last(one.size()), rank.weights().final_norm, one);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.end() - Small().hidden));
}

}  // namespace
}  // namespace trivet::model
