// SPDX-License-Identifier: Apache-2.0
#include "kernels/mx_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/gemm.h"
#include "tests/kernels/packed.h"

namespace trivet::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kBlockBytes = 17;  // an E8M0 byte and 32 codes, the first of a pair in the lower bits

// A matrix from blocks as a checkpoint has them, [n][ceil(k / 32)][17].
class MxMatrix {
 public:
  MxMatrix(int64_t n, int64_t k, int64_t leaf, std::vector<std::byte> blocks)
      : blocks_(std::move(blocks)), matrix_{WeightFormat::kMxfp4, n, k, leaf, nullptr, 0}, tiles_(matrix_.bytes()) {
    matrix_.data = tiles_.data();
    std::fill_n(tiles_.data(), tiles_.size(), std::byte{0});
    for (int64_t row = 0; row < n; ++row) {
      FormatRow(WeightFormat::kMxfp4)
          .store(blocks_.data() + row * count() * kBlockBytes, count() * 32,
                 tiles_.data() + row / kTileRows * matrix_.tile_bytes(), row % kTileRows, 0);
    }
  }

  int64_t count() const { return (matrix_.k + 31) / 32; }  // blocks of a row
  const PackedMatrix& matrix() const { return matrix_; }
  int Scale(int64_t row, int64_t block) const { return static_cast<int>(At(row, block)[0]); }
  /// The value of a code, without its scale.
  long double Code(int64_t row, int64_t column) const {
    constexpr long double kMagnitudes[] = {0, 0.5L, 1, 1.5L, 2, 3, 4, 6};
    const int pair = static_cast<int>(At(row, column / 32)[1 + column % 32 / 2]);
    const int code = column % 2 == 0 ? pair % 16 : pair / 16;
    return code < 8 ? kMagnitudes[code] : -kMagnitudes[code - 8];
  }

 private:
  const std::byte* At(int64_t row, int64_t block) const {
    return blocks_.data() + (row * count() + block) * kBlockBytes;
  }

  std::vector<std::byte> blocks_;
  PackedMatrix matrix_;
  Guarded<std::byte> tiles_;
};

MxMatrix RandomMatrix(int64_t n, int64_t k, int64_t leaf, std::mt19937_64* random) {
  return {n, k, leaf, RandomBlocks(quant::BlockFormat::kMxfp4, n * ((k + 31) / 32), random)};
}

// A block of activations by its definition.
struct Block {
  int exponent = -100;
  bool finite = true;
  int64_t q[32] = {};
};

Block BlockOf(const float* x, int64_t count) {
  Block block;
  for (int64_t k = 0; k < count; ++k) {
    block.finite &= std::isfinite(x[k]);
    int exponent = -100;
    if (block.finite && x[k] != 0) std::frexp(x[k], &exponent);
    block.exponent = std::max(block.exponent, exponent);
  }
  for (int64_t k = 0; k < count && block.finite; ++k) {
    block.q[k] = std::llrint(std::ldexp(static_cast<long double>(x[k]), 22 - block.exponent));
  }
  return block;
}

std::vector<Block> BlocksOf(const float* x, int64_t k) {
  std::vector<Block> blocks;
  for (int64_t at = 0; at < k; at += 32) blocks.push_back(BlockOf(x + at, std::min<int64_t>(32, k - at)));
  return blocks;
}

// A leaf's sum by the definition.
float LeafOf(const std::vector<Block>& x, const MxMatrix& w, int64_t row, int64_t begin, int64_t end) {
  float leaf = 0;
  for (int64_t k = begin; k < end; k += 32) {
    const Block& block = x[static_cast<size_t>(k / 32)];
    const int scale = w.Scale(row, k / 32);
    int64_t sum = 0;
    for (int64_t i = 0; i < std::min<int64_t>(32, end - k); ++i) {
      sum += static_cast<int64_t>(2 * w.Code(row, k + i)) * block.q[i];
    }
    float s = scale == 0 ? 0 : static_cast<float>(std::ldexp(1.0L, scale - 127 + block.exponent - 23));
    if (scale == 255) s = kInf;
    if (!block.finite) s = kNaN;
    leaf = std::fma(static_cast<float>(sum), s, leaf);
  }
  return leaf;
}

// A sum of products, and how far a leaf may lie from it: activations by half a step, scales of zero by their products,
// and two roundings for each block.
struct Products {
  long double sum = 0, allowed = 0;
};

Products ProductsOf(const float* x, const std::vector<Block>& blocks, const MxMatrix& w, int64_t row, int64_t begin,
                    int64_t end) {
  Products products;
  long double magnitude = 0;
  for (int64_t k = begin; k < end; ++k) {
    const int scale = w.Scale(row, k / 32);
    const long double weight = std::ldexp(w.Code(row, k), scale - 127);
    const long double product = static_cast<long double>(x[k]) * weight;
    products.sum += product;
    products.allowed += std::ldexp(std::fabs(weight), blocks[static_cast<size_t>(k / 32)].exponent - 23);
    if (scale == 0) products.allowed += std::fabs(product);
    magnitude += std::fabs(product);
  }
  const auto roundings = static_cast<long double>(2 * ((end - begin + 31) / 32));
  products.allowed += (magnitude + products.allowed) * roundings * 0x1p-24L;
  return products;
}

// The leaf on the grid; adds its flags.
int64_t OnGrid(float leaf, uint32_t* flags) {
  if (std::fabs(leaf) <= 0x1p20F) return std::llrint(std::ldexp(static_cast<long double>(leaf), 30));
  *flags |= std::isfinite(leaf) ? kSaturated : kNonFinite;
  return leaf < 0 ? -(int64_t{1} << 50) : int64_t{1} << 50;
}

// Sums of `m` rows by `row`, and the flags they raised.
std::vector<int64_t> Sums(const KernelRow<Gemm>& row, const std::vector<float>& x, int64_t m, const MxMatrix& w,
                          uint32_t* flags) {
  const PackedMatrix& matrix = w.matrix();
  std::vector<int64_t> sums(static_cast<size_t>(m * matrix.n), 0);
  std::atomic<uint32_t> met{0};
  Gemm::Args args;
  args.x = x.data();
  args.x_stride = matrix.k;
  args.m = m;
  args.w = &matrix;
  args.sums_fixed = sums.data();
  args.y_stride = matrix.n;
  args.tile_end = matrix.tiles();
  args.flags = &met;
  row.run(args);
  *flags = met.load();
  return sums;
}

// Every row of the gemm gives the sums of the definition; returns the flags they raise.
uint32_t ExpectDefinition(const std::vector<float>& x, int64_t m, const MxMatrix& w) {
  const PackedMatrix& matrix = w.matrix();
  std::vector<int64_t> expected;
  uint32_t flags = kInRange;
  for (int64_t row = 0; row < m; ++row) {
    const std::vector<Block> blocks = BlocksOf(x.data() + row * matrix.k, matrix.k);
    for (int64_t n = 0; n < matrix.n; ++n) {
      int64_t& sum = expected.emplace_back(0);
      for (int64_t k = 0; k < matrix.k; k += matrix.leaf) {
        sum += OnGrid(LeafOf(blocks, w, n, k, std::min(k + matrix.leaf, matrix.k)), &flags);
      }
    }
  }
  for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
    uint32_t found = 0;
    const std::vector<int64_t> sums = Sums(row, x, m, w, &found);
    EXPECT_EQ(found, flags) << row.name;
    const auto [at, _] = std::mismatch(sums.begin(), sums.end(), expected.begin());
    EXPECT_EQ(at, sums.end()) << row.name << ": sum " << at - sums.begin() << " of " << m << " x " << matrix.n << ", k "
                              << matrix.k << ", leaf " << matrix.leaf;
  }
  return flags;
}

// Values of every magnitude from 2^-30 to 2^4, signs and zeros.
std::vector<float> WideValues(int64_t count, std::mt19937_64* random) {
  std::vector<float> values = RandomValues(count, random);
  for (float& value : values) {
    const int power = static_cast<int>((*random)() % 36);
    value = power == 0 ? 0 : std::ldexp(value, 5 - power);
  }
  return values;
}

}  // namespace

TEST(MxBlock, KeepsTwentyTwoBitsOfTheLargest) {
  std::mt19937_64 random(91);
  for (int round = 0; round < 2000; ++round) {
    const auto count = static_cast<int64_t>(1 + random() % 32);
    std::vector<float> x = WideValues(count, &random);
    // Up to the largest numbers and down to subnormal ones, where E stays at -100.
    const int power = static_cast<int>(random() % 256) - 132;
    for (float& value : x) value = std::ldexp(value, power);
    const Block expected = BlockOf(x.data(), count);
    const MxBlock found = MxBlockOf(x.data(), count);
    ASSERT_EQ(found.factor, std::ldexp(1.0F, expected.exponent - 23)) << "2^" << power;
    for (int64_t k = 0; k < 32; ++k) {
      ASSERT_EQ(found.q[k], expected.q[k]) << "value " << (k < count ? x[static_cast<size_t>(k)] : 0.0F);
      EXPECT_LE(std::abs(found.q[k]), 1 << 22);
    }
  }
}

TEST(MxBlock, TiesGoToEvenAndRoundingReachesTheLargestInteger) {
  const float one = 1.0F, step = 0x1p-21F;  // E is 1
  const float x[] = {one, 0.5F * step, 1.5F * step, 2.5F * step, -0.5F * step, -1.5F * step, 0x1.fffffep0F};
  const MxBlock block = MxBlockOf(x, 7);
  const int32_t expected[] = {1 << 21, 0, 2, 2, 0, -2, 1 << 22};
  for (int64_t k = 0; k < 7; ++k) EXPECT_EQ(block.q[k], expected[k]) << k;
}

TEST(MxBlock, OneThatIsNoNumberLeavesNoFactor) {
  for (const float bad : {kInf, -kInf, kNaN, -kNaN}) {
    const float x[] = {1.0F, bad, 2.0F};
    const MxBlock block = MxBlockOf(x, 3);
    EXPECT_TRUE(std::isnan(block.factor)) << bad;
    for (const int32_t q : block.q) EXPECT_EQ(q, 0);
  }
}

TEST(MxBlock, ProductsAreThoseOfTheDefinition) {
  std::mt19937_64 random(92);
  for (const int64_t leaf : {32, 64, 96, 128, 256, 1024}) {
    for (const int64_t k : {1, 31, 32, 33, 97, 256, 700, 1100}) {
      for (const int64_t m : {1, 2, 3, 4, 5, 7, 8, 13, 100}) {
        const auto n = static_cast<int64_t>(1 + random() % (m > 50 ? 40 : 100));
        const MxMatrix w = RandomMatrix(n, k, leaf, &random);
        ASSERT_TRUE(MxServes(w.matrix()));
        EXPECT_EQ(ExpectDefinition(WideValues(m * k, &random), m, w), kInRange);
      }
    }
  }
}

// Sums of a whole block at their limits: what would not fit 16 bits, or 32, shows here.
TEST(MxBlock, TheLargestSumsAreExact) {
  constexpr int64_t kN = 33, kK = 64;
  for (const int pair : {0x77, 0xFF, 0x7F, 0xF7, 0x88, 0x00}) {
    std::vector<std::byte> blocks(kN * 2 * kBlockBytes, static_cast<std::byte>(pair));
    for (size_t b = 0; b < kN * 2; ++b) blocks[b * kBlockBytes] = std::byte{118};
    const MxMatrix w(kN, kK, 64, std::move(blocks));
    // 2^22, the integers with the largest low bytes and middle bytes of both signs, and one below a change of sign.
    for (const int q : {1 << 22, 0x3F7F7F, 0x3E8080, 0x007F80, 0x008080, 0x00807F, 0x7F, 0x80, 0x8000, 0x7FFF}) {
      for (const int alternate : {1, -1}) {
        std::vector<float> x(kK);
        for (size_t k = 0; k < kK; ++k) {
          x[k] = std::ldexp(static_cast<float>(k % 2 == 0 ? q : alternate * q), -22);
          if (k % 32 == 5) x[k] = 1 - 0x1p-24F;  // sets E to 0 and rounds to 2^22
        }
        EXPECT_EQ(ExpectDefinition(x, 1, w), kInRange);
        std::vector<float> many;
        for (int row = 0; row < 6; ++row) many.insert(many.end(), x.begin(), x.end());
        EXPECT_EQ(ExpectDefinition(many, 6, w), kInRange);
      }
    }
  }
}

TEST(MxBlock, ScalesOfZeroAddNothingAndScalesOf255AreAnError) {
  std::mt19937_64 random(93);
  constexpr int64_t kN = 40, kK = 128;
  std::vector<std::byte> blocks = RandomBlocks(quant::BlockFormat::kMxfp4, kN * 4, &random);
  for (size_t b = 0; b < kN * 4; ++b) blocks[b * kBlockBytes] = static_cast<std::byte>(b % 3 == 0 ? 0 : 120);
  EXPECT_EQ(ExpectDefinition(WideValues(3 * kK, &random), 3, MxMatrix(kN, kK, 64, blocks)), kInRange);
  std::vector<float> zeros(kK, 0.0F);
  EXPECT_EQ(ExpectDefinition(zeros, 1, MxMatrix(kN, kK, 64, blocks)), kInRange);
  blocks[7 * kBlockBytes] = std::byte{255};
  EXPECT_EQ(ExpectDefinition(WideValues(3 * kK, &random), 3, MxMatrix(kN, kK, 64, blocks)), kNonFinite);
  EXPECT_EQ(ExpectDefinition(zeros, 1, MxMatrix(kN, kK, 64, blocks)), kNonFinite);
}

TEST(MxBlock, ActivationsThatAreNoNumbersAreAnErrorOfTheirRow) {
  std::mt19937_64 random(94);
  constexpr int64_t kM = 7, kK = 200;
  const MxMatrix w = RandomMatrix(70, kK, 64, &random);
  for (const float bad : {kInf, -kInf, kNaN, -kNaN, 3e38F, -3e38F}) {
    std::vector<float> x = WideValues(kM * kK, &random);
    x[3 * kK + random() % kK] = bad;
    const uint32_t flags = ExpectDefinition(x, kM, w);
    EXPECT_NE(flags & (std::isfinite(bad) ? kSaturated : kNonFinite), 0U) << bad;
  }
}

TEST(MxBlock, ProductsAreThoseOfMatrices) {
  std::mt19937_64 random(95);
  for (const int64_t leaf : {32, 128, 256}) {
    const MxMatrix w = RandomMatrix(64, 500, leaf, &random);
    const std::vector<float> x = RandomValues(500, &random, 4);
    const std::vector<Block> blocks = BlocksOf(x.data(), 500);
    for (int64_t n = 0; n < 64; ++n) {
      for (int64_t k = 0; k < 500; k += leaf) {
        const int64_t end = std::min<int64_t>(k + leaf, 500);
        const Products products = ProductsOf(x.data(), blocks, w, n, k, end);
        const auto found = static_cast<long double>(LeafOf(blocks, w, n, k, end));
        EXPECT_LE(std::fabs(found - products.sum), products.allowed) << "output " << n << ", column " << k;
      }
    }
  }
}

}  // namespace trivet::kernels
