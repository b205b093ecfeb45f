// SPDX-License-Identifier: Apache-2.0
#include "kernels/argmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/reference.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The largest key of a row of which one rank has the columns from `first` on, `real` of them, and pads behind.
uint64_t KeyOf(const std::vector<float>& logits, int64_t first, int64_t real) {
  std::vector<uint64_t> keys(kArgmaxParts);
  const int32_t row = 0;
  ArgmaxRef({logits.data(), static_cast<int64_t>(logits.size()), real, first, &row, keys.data(), 0, kArgmaxParts});
  return *std::max_element(keys.begin(), keys.end());
}

uint64_t KeyOf(const std::vector<float>& logits) { return KeyOf(logits, 0, static_cast<int64_t>(logits.size())); }

}  // namespace

void CompareArgmax(RowLog* log) {
  std::mt19937_64 random(91);
  std::vector<int64_t> widths = {0, 1, 5, 63, 64, 65, 300, 4099, 16512};
  if (log->large()) widths.push_back(248320);
  for (const int64_t n : widths) {
    for (int form = 0; form < 6; ++form) {
      const int64_t stride = n + 3, count = 5;
      std::vector<float> logits = RandomValues(count * stride, &random, 30);
      if (form == 1)
        std::transform(logits.begin(), logits.end(), logits.begin(), [](float x) { return std::round(x); });
      if (form == 2) std::fill(logits.begin(), logits.end(), -0.0F);  // nothing but ties
      if (form == 3) std::fill(logits.begin(), logits.end(), -kInfinity);
      for (int64_t row = 0; row < count; ++row) {
        float* of_row = logits.data() + row * stride;
        std::fill_n(of_row + n, stride - n, kNaN);  // pads, which must not be looked at
        if (n == 0) continue;
        const auto place = [&] { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
        if (form == 2) of_row[place()] = 0;
        for (int i = 0; i < 3 && form >= 4; ++i) of_row[place()] = form == 4 || i == 1 ? kInfinity : -kNaN;
      }
      const std::vector<int32_t> rows = {3, -1, 0, 4};
      log->Compare<Argmax>(std::to_string(n) + " columns, form " + std::to_string(form),
                           [&](const KernelRow<Argmax>& row, Outputs* outputs) {
                             Guarded<uint64_t> keys(4 * kArgmaxParts);
                             std::iota(keys.data(), keys.data() + keys.size(), uint64_t{7});
                             Argmax::Args args{logits.data(), stride, n, 1000, rows.data(), keys.data()};
                             args.end = kArgmaxParts + 9;
                             row.run(args);
                             args.begin = args.end;
                             args.end = keys.size();
                             row.run(args);
                             outputs->Take(keys);
                           });
    }
  }
}

namespace {

TEST(ArgmaxKey, OrdersAsLogitsDoThenByToken) {
  const std::vector<float> ascending = {-kInfinity, -3e38F, -1, -1e-40F, 0, 1e-45F, 2, 3e38F};
  for (size_t i = 0; i + 1 < ascending.size(); ++i) {
    EXPECT_LT(ArgmaxKey(ascending[i], 0), ArgmaxKey(ascending[i + 1], 999)) << ascending[i];
    EXPECT_GT(ArgmaxKey(ascending[i], 4), ArgmaxKey(ascending[i], 5));
  }
  EXPECT_EQ(ArgmaxKey(-0.0F, 4), ArgmaxKey(0.0F, 4));
  EXPECT_GT(ArgmaxKey(-kInfinity, INT32_MAX), 0U) << "a forbidden token is one";
  EXPECT_GT(ArgmaxKey(kInfinity, 4), ArgmaxKey(kNaN, 5)) << "the first that is no logit";
  EXPECT_GT(ArgmaxKey(-kNaN, 4), ArgmaxKey(kInfinity, 5));
  EXPECT_GT(ArgmaxKey(kNaN, INT32_MAX), ArgmaxKey(3e38F, 0));
}

TEST(ArgmaxKey, HoldsTokenAndLogit) {
  for (const float logit : {-kInfinity, -7.5F, -1e-40F, 0.0F, 1e-45F, 12.25F, 3e38F, kInfinity}) {
    for (const int64_t token : {0, 1, 248319, INT32_MAX}) {
      EXPECT_EQ(ArgmaxToken(ArgmaxKey(logit, token)), token);
      EXPECT_EQ(ArgmaxLogit(ArgmaxKey(logit, token)), logit);
    }
  }
  EXPECT_TRUE(std::isnan(ArgmaxLogit(ArgmaxKey(-kNaN, 3))));
  EXPECT_EQ(ArgmaxToken(ArgmaxKey(-kNaN, 3)), 3);
}

TEST(Argmax, OfEqualsTheLowestToken) {
  std::vector<float> logits(1000, 1);
  logits[700] = logits[30] = logits[999] = 5;
  EXPECT_EQ(ArgmaxToken(KeyOf(logits)), 30);
  logits[0] = -0.0F;
  std::fill(logits.begin() + 1, logits.end(), 0.0F);
  EXPECT_EQ(ArgmaxToken(KeyOf(logits)), 0);
}

TEST(Argmax, PadsNeverWin) {
  std::vector<float> logits(300, -kInfinity);
  logits[299] = 9;
  EXPECT_EQ(ArgmaxToken(KeyOf(logits, 0, 299)), 0);
  EXPECT_EQ(ArgmaxLogit(KeyOf(logits, 0, 299)), -kInfinity);
  EXPECT_EQ(KeyOf(logits, 0, 0), 0U) << "a rank without a column";
}

// However a vocabulary is cut, the largest of the parts' keys is that of the whole.
TEST(Argmax, AnyCutOfTheVocabularyGivesTheSame) {
  std::mt19937_64 random(92);
  for (int form = 0; form < 3; ++form) {
    std::vector<float> logits = RandomValues(997, &random, 3);
    if (form == 1) std::transform(logits.begin(), logits.end(), logits.begin(), [](float x) { return std::round(x); });
    if (form == 2) logits[600] = kNaN, logits[300] = kInfinity;
    const uint64_t whole = KeyOf(logits);
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      uint64_t best = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const int64_t begin = 997 * rank / ranks, end = 997 * (rank + 1) / ranks;
        std::vector<float> part(logits.begin() + begin, logits.begin() + end);
        part.resize(part.size() + 5, 100);  // pads
        best = std::max(best, KeyOf(part, begin, end - begin));
      }
      EXPECT_EQ(best, whole) << ranks;
    }
  }
}

}  // namespace
}  // namespace trivet::kernels
