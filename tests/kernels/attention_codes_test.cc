// SPDX-License-Identifier: Apache-2.0
// Keys and values kept as E4M3 codes: what a code stands for, how far that is from the value, and that every row
// computes with it what it computes with the same floats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/reference.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {
namespace {

constexpr int64_t kTokens = 150, kPages = 3, kHeads = 2;
constexpr std::byte kNan{0x7f};

// One sequence whose keys and values are kept as floats and as codes; unused places hold NaNs.
class Both {
 public:
  Both(int64_t dim, std::mt19937_64* random, int sizes = 9)
      : dim_(dim),
        kv_(RandomValues(kTokens * stride(), random)),
        keys_(kPages * kHeads * kBlockKeys * dim, std::numeric_limits<float>::quiet_NaN()),
        values_(keys_),
        key_codes_(static_cast<size_t>(kPages * kHeads * KvCodeBytes(dim)), kNan),
        value_codes_(key_codes_) {
    // Rows of `sizes` different sizes, and one of zeros.
    for (int64_t row = 0; row < kTokens * 2 * kHeads; ++row) {
      const float size = row == 7 ? 0.0F : std::scalbn(1.0F, static_cast<int>(row % sizes) - sizes / 2);
      for (int64_t d = 0; d < dim; ++d) At(row)[d] *= size;
    }
  }

  // Head h of token t: row (t * 2 + 0) * kHeads + h has its key, (t * 2 + 1) * kHeads + h its value.
  float* At(int64_t row) { return kv_.data() + row * dim_; }
  void Write() {
    KvWriteRef({kv_.data(), stride(), floats(), spans(), 0, kTokens});
    KvWriteRef({kv_.data(), stride(), codes(), spans(), 0, kTokens});
  }
  // The floats become what the codes stand for.
  void DecodeIntoFloats() {
    for (int64_t page = 0; page < kPages; ++page) {
      for (int64_t head = 0; head < kHeads; ++head) {
        DecodeKvRef(codes(), page, head, keys_.data() + floats().Offset(page, head),
                    values_.data() + floats().ValueOffset(page, head));
      }
    }
  }
  float Key(int64_t position, int64_t head, int64_t d) const {
    const int64_t page = pages_[static_cast<size_t>(position / kBlockKeys)];
    return keys_[static_cast<size_t>(((page * kHeads + head) * dim_ + d) * kBlockKeys + position % kBlockKeys)];
  }
  float Value(int64_t position, int64_t head, int64_t d) const {
    const int64_t page = pages_[static_cast<size_t>(position / kBlockKeys)];
    return values_[static_cast<size_t>(((page * kHeads + head) * kBlockKeys + position % kBlockKeys) * dim_ + d)];
  }

  KvPages floats() { return {keys_.data(), values_.data(), kHeads, dim_, dim_}; }
  KvPages codes() { return {nullptr, nullptr, kHeads, dim_, dim_, key_codes_.data(), value_codes_.data()}; }
  std::span<const TokenSpan> spans() const { return {&span_, 1}; }
  int64_t stride() const { return 2 * kHeads * dim_; }

 private:
  int64_t dim_;
  std::vector<float> kv_, keys_, values_;
  std::vector<std::byte> key_codes_, value_codes_;
  std::vector<int32_t> pages_ = {2, 0, 1};
  TokenSpan span_{0, kTokens, 0, 0, pages_.data()};
};

// Half a step of E4M3 under the row's scale s: 2^-4 of the value where codes are normal, 2^-10 s below; s is less than
// the row's largest magnitude / 224.
float HalfStep(const float* row, int64_t dim, float value) {
  float largest = 0;
  for (int64_t d = 0; d < dim; ++d) largest = std::max(largest, std::abs(row[d]));
  return std::max(std::abs(value) / 16, largest / 224 / 1024);
}

TEST(KvWrite, CodesAreWithinHalfAStep) {
  std::mt19937_64 random(31);
  for (const int64_t dim : {1, 24, 128}) {
    Both both(dim, &random);
    both.At(4)[0] = std::numeric_limits<float>::infinity();  // token 1's key of head 0
    both.Write();
    both.DecodeIntoFloats();
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const float *key = both.At(t * 2 * kHeads + h), *value = both.At((t * 2 + 1) * kHeads + h);
        for (int64_t d = 0; d < dim; ++d) {
          if (t == 1 && h == 0) {
            EXPECT_FALSE(std::isfinite(both.Key(t, h, d))) << "a fault must not become a number";
          } else {
            EXPECT_LE(std::abs(both.Key(t, h, d) - key[d]), HalfStep(key, dim, key[d])) << dim << ' ' << t;
          }
          EXPECT_LE(std::abs(both.Value(t, h, d) - value[d]), HalfStep(value, dim, value[d])) << dim << ' ' << t;
        }
      }
    }
  }
}

// Attention over the whole sequence with `cache`.
Outputs Attend(const KernelRow<Attention>& row, const Both& both, const KvPages& cache, std::vector<float>* out) {
  const std::vector<int32_t> to_kv = {0, 0, 0, 0, 0, 1};
  const auto heads = static_cast<int64_t>(to_kv.size());
  std::mt19937_64 random(33);
  const std::vector<float> q = RandomValues(kTokens * heads * cache.head_dim, &random);
  Guarded<float> guarded(kTokens * heads * cache.head_dim, 1);
  row.run({q.data(), heads * cache.head_dim, cache.head_dim, heads, to_kv.data(), cache, 0.1F, guarded.data(),
           both.spans(), 0, kTokens * kHeads});
  out->assign(guarded.data(), guarded.data() + kTokens * heads * cache.head_dim);
  Outputs outputs;
  outputs.Take(guarded);
  return outputs;
}

TEST(Attention, CodesGiveTheBytesOfWhatTheyStandFor) {
  std::mt19937_64 random(32);
  for (const int64_t dim : {16, 20, 64, 128}) {
    Both both(dim, &random);
    both.Write();
    both.DecodeIntoFloats();
    for (const KernelRow<Attention>& row : RunnableRowsOf<Attention>()) {
      std::vector<float> out;
      const Outputs codes = Attend(row, both, both.codes(), &out), floats = Attend(row, both, both.floats(), &out);
      EXPECT_EQ(codes.bytes(), floats.bytes()) << row.name << ", dim " << dim;
    }
  }
}

// With scores off by at most e, weights are within e^(2 e) of what they were, so their differences add up to at most
// e^(2 e) - 1.
TEST(Attention, CodesMoveAnAnswerNoFurtherThanTheirStepsDo) {
  std::mt19937_64 random(34);
  constexpr int64_t kDim = 32;
  Both both(kDim, &random, 1);
  both.Write();
  std::vector<float> exact, coded;
  const KernelRow<Attention> row = RunnableRowsOf<Attention>().front();
  Attend(row, both, both.floats(), &exact);
  Attend(row, both, both.codes(), &coded);
  // Queries are at most 1 and the scale is 0.1.
  double score = 0, step = 0, largest = 0, moved = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const float *key = both.At(t * 2 * kHeads + h), *value = both.At((t * 2 + 1) * kHeads + h);
      double off = 0;
      for (int64_t d = 0; d < kDim; ++d) {
        off += 0.1 * HalfStep(key, kDim, key[d]);
        step = std::max<double>(step, HalfStep(value, kDim, value[d]));
        largest = std::max<double>(largest, std::abs(value[d]));
      }
      score = std::max(score, off);
    }
  }
  const double bound = std::expm1(2 * score) * (largest + step) + step + 1e-4;
  for (size_t i = 0; i < exact.size(); ++i) moved = std::max<double>(moved, std::abs(exact[i] - coded[i]));
  EXPECT_LE(moved, bound);
  EXPECT_GT(moved, 0);
}

}  // namespace
}  // namespace trivet::kernels
