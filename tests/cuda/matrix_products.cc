// SPDX-License-Identifier: Apache-2.0
// Products by matrix units: no reference has their bits, but a row's bits depend on the row and the matrix alone, and
// they are near the product.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <deque>

#include "kernels/expert_gemm.h"
#include "kernels/gemm_matrix.h"
#include "kernels/reference.h"
#include "tests/kernels/gemm_problem.h"

namespace trivet::kernels {
namespace {

constexpr WeightFormat kServed[] = {WeightFormat::kBF16, WeightFormat::kFp8, WeightFormat::kMxfp4Halves};

const KernelRow<Gemm>& MatrixRow() {
  const KernelRow<Gemm>& row = Gemm::CudaRows().front();
  EXPECT_EQ(row.contract, Contract::kMatrix);
  return row;
}

// What `args` computes into y.
std::vector<float> Multiply(const KernelRow<Gemm>& row, Gemm::Args args, uint32_t* flags = nullptr) {
  std::vector<float> y(static_cast<size_t>(args.m * args.w->n), -1);
  const auto met = std::make_unique<std::atomic<uint32_t>>(0);
  args.y = y.data();
  args.y_rows = nullptr;
  args.y_stride = args.w->n;
  args.flags = met.get();
  row.run(args);
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  if (flags != nullptr) *flags = met->load();
  return y;
}

// The largest magnitude among the 32 columns that become integers together with column `c`. The cases' columns are not
// cut, so that blocks begin at multiples of 32.
double LargestOfBlock(const float* x, int64_t c, int64_t k) {
  double largest = 0;
  for (int64_t i = c / 32 * 32; i < std::min(k, c / 32 * 32 + 32); ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
  return largest;
}

PackedShape ShapeOf(WeightFormat format, int64_t n, int64_t k, int64_t leaf) {
  // FP8 has blocks of 128, inside of which a cut may lie.
  return {format, n, k, leaf, format == WeightFormat::kFp8 && k % 64 == 0 ? int64_t{64} : 0};
}

TEST(CudaMatrix, ProductsAreNearTheSumOfProducts) {
  std::mt19937_64 random(31);
  int64_t outputs = 0;
  for (const WeightFormat format : kServed) {
    for (const auto& [n, k, leaf] : {std::array<int64_t, 3>{33, 32, 32},
                                     {64, 96, 32},
                                     {100, 352, 32},
                                     {40, 1024, 64},
                                     {72, 480, 160},
                                     {300, 640, 128},
                                     {32, 70, 32}}) {
      if (BlocksOf(format).has_value() && k % 32 != 0) continue;
      for (const int64_t m : {1, 3, 5, 13, 70}) {
        for (const bool aligned : {false, true}) {
          GemmForm form;
          form.aligned = aligned, form.map_x = m == 13;
          GemmProblem problem(ShapeOf(format, n, k, leaf), m, form, &random);
          const Gemm::Args args = problem.Args();
          ASSERT_TRUE(MatrixUnitsServe(*args.w));
          const std::vector<float> y = Multiply(MatrixRow(), args);
          for (int64_t r = 0; r < m; ++r) {
            const float* x = args.x + (args.x_rows == nullptr ? r : args.x_rows[r]) * args.x_stride;
            for (int64_t o = 0; o < n; ++o) {
              double sum = 0, magnitude = 0, rounded = 0;
              for (int64_t c = 0; c < k; ++c) {
                const auto weight = static_cast<double>(problem.weights().values()[static_cast<size_t>(o * k + c)]);
                sum += static_cast<double>(x[c]) * weight;
                magnitude += std::fabs(static_cast<double>(x[c]) * weight);
                rounded += LargestOfBlock(x, c, k) * std::fabs(weight);
              }
              // Three BF16 parts keep an activation whole; as an integer it moves by at most a 2^-22 of its block's
              // largest. An instruction cuts each of its 17 addends by at most 2^-24 of the largest; a leaf has three
              // for every sixteen columns. Then scales, and half a grid step a leaf.
              const double whole = magnitude * (static_cast<double>(leaf) * 3 / 16 * 17 * 0x1p-24 + 0x1p-20);
              const double grid = static_cast<double>(k / leaf + 1) * 0x1p-31;
              const double integers = format == WeightFormat::kBF16 ? 0 : rounded * 0x1p-22;
              ASSERT_NEAR(y[static_cast<size_t>(r * n + o)], sum, whole + integers + grid)
                  << problem.Name() << " row " << r << " output " << o;
              ++outputs;
            }
          }
        }
      }
    }
  }
  std::printf("%d outputs\n", static_cast<int>(outputs));
}

TEST(CudaMatrix, ProductsInIntegersHaveTheBytesOfTheReference) {
  std::mt19937_64 random(37);
  for (const auto& [n, k, leaf] : {std::array<int64_t, 3>{33, 32, 32}, {100, 352, 96}, {72, 1280, 256}}) {
    for (const int64_t m : {1, 2, 4, 8, 11, 16, 17, 40, 70}) {
      GemmProblem problem({WeightFormat::kMxfp4Halves, n, k, leaf}, m, {}, &random);
      for (size_t i = 0; i < problem.x().size(); i += 3) {
        problem.x()[i] *= std::ldexp(1.0F, static_cast<int>(random() % 60) - 50);  // small beside their neighbours
      }
      const Gemm::Args args = problem.Args();
      const std::vector<float> y = Multiply(MatrixRow(), args);
      ASSERT_EQ(y, Multiply({"gemm/ref", 0, GemmRef}, args)) << problem.Name();
    }
  }
}

TEST(CudaMatrix, ARowsBytesDoNotDependOnItsBatch) {
  std::mt19937_64 random(32);
  int64_t rows = 0;
  for (const WeightFormat format : kServed) {
    for (const auto& [n, k, leaf] : {std::array<int64_t, 3>{161, 416, 32}, {288, 1536, 128}, {2100, 768, 256}}) {
      for (const int64_t m : {2, 3, 4, 7, 8, 9, 16, 17, 40, 64, 65, 130}) {
        GemmProblem problem({format, n, k, leaf}, m, {}, &random);
        const Gemm::Args all = problem.Args();
        const std::vector<float> y = Multiply(MatrixRow(), all);
        for (int64_t r = 0; r < m; r += 1 + r / 3) {
          Gemm::Args one = all;
          one.x += r * all.x_stride;
          one.m = 1;
          const std::vector<float> alone = Multiply(MatrixRow(), one);
          ASSERT_EQ(std::memcmp(alone.data(), y.data() + r * n, alone.size() * 4), 0) << problem.Name() << " row " << r;
          ++rows;
        }
      }
    }
  }
  std::printf("%d rows\n", static_cast<int>(rows));
}

TEST(CudaMatrix, SumsAndRangesOfTilesGiveTheSameBytes) {
  std::mt19937_64 random(33);
  for (const WeightFormat format : kServed) {
    for (const int64_t m : {1, 3, 16, 37}) {
      GemmForm form;
      form.sums = true;
      GemmProblem problem({format, 200, 640, 64}, m, form, &random);
      const Gemm::Args all = problem.Args();
      Outputs whole([] { cudaStreamSynchronize(cudaStreamPerThread); });
      problem.Run(MatrixRow(), all, &whole);
      std::vector<Gemm::Args> parts(3, all);
      parts[0].tile_end = parts[1].tile_begin = 2;
      parts[1].tile_end = parts[2].tile_begin = 5;
      Outputs split([] { cudaStreamSynchronize(cudaStreamPerThread); });
      problem.RunParts(MatrixRow(), parts, &split);
      EXPECT_TRUE(whole.intact() && split.intact());
      EXPECT_EQ(whole.bytes(), split.bytes()) << problem.Name();
      // A sum is the grid's value of which y is the float.
      Gemm::Args args = all;
      const std::vector<float> y = Multiply(MatrixRow(), args);
      std::vector<int64_t> sums(static_cast<size_t>(m * 200), 0);
      const auto flags = std::make_unique<std::atomic<uint32_t>>(0);
      args.sums_fixed = sums.data(), args.y = nullptr, args.y_stride = 200, args.flags = flags.get();
      MatrixRow().run(args);
      ASSERT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(FromGrid(sums[i]), y[i]) << problem.Name() << " output " << i;
    }
  }
}

// Products large enough that a block fills a multiprocessor: outputs that are cut between warps and blocks, columns
// that do and do not fit shared memory at once, and sums of some of the tiles by rows of their own order.
TEST(CudaMatrix, ProductsThatAreDealtOutHaveTheBytesOfARowAlone) {
  std::mt19937_64 random(38);
  constexpr int64_t kMost = 64;
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kMxfp4Halves}) {
    for (const auto& [n, k, leaf, phase] :
         {std::array<int64_t, 4>{2101, 4224, 128, 0}, {9000, 2560, 256, 128}, {520, 16640, 128, 0}}) {
      GemmProblem problem({format, n, k, leaf, phase}, kMost, {}, &random);
      const Gemm::Args all = problem.Args();
      std::vector<float> alone;
      for (int64_t r = 0; r < kMost; ++r) {
        Gemm::Args one = all;
        one.x += r * all.x_stride, one.m = 1;
        const std::vector<float> y = Multiply(MatrixRow(), one);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      const std::vector<float> scales = RandomValues(kMost, &random);
      for (const int64_t m : {2, 4, 5, 8, 9, 23, 64}) {
        Gemm::Args args = all;
        args.m = m;
        const std::vector<float> y = Multiply(MatrixRow(), args);
        ASSERT_EQ(std::memcmp(alone.data(), y.data(), y.size() * 4), 0) << problem.Name() << " of " << m;

        if (m > 9 || n > 3000) continue;  // sums in memory of the processor take their time
        // Sums of the rows in reverse, in two ranges of tiles, and one by one.
        std::vector<int32_t> reverse;
        for (int64_t r = 0; r < m; ++r) reverse.push_back(static_cast<int32_t>(m - 1 - r));
        std::vector<int64_t> sums(static_cast<size_t>(m * n), 0), sums_alone(sums);
        const auto flags = std::make_unique<std::atomic<uint32_t>>(0);
        args.y = nullptr, args.y_stride = n, args.flags = flags.get();
        args.row_scale = scales.data();
        Gemm::Args one = args;
        one.m = 1, one.sums_fixed = sums_alone.data();
        args.sums_fixed = sums.data(), args.y_rows = reverse.data();
        for (const int64_t border : {int64_t{0}, int64_t{3}}) {
          args.tile_begin = border;
          args.tile_end = border == 0 ? 3 : all.tile_end;
          MatrixRow().run(args);
        }
        for (int64_t r = 0; r < m; ++r) {
          one.y_rows = reverse.data() + r;
          MatrixRow().run(one);
          ++one.row_scale, one.x += one.x_stride;
        }
        ASSERT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
        ASSERT_EQ(sums, sums_alone) << problem.Name() << " of " << m;
        ASSERT_EQ(flags->load(), kInRange);
      }
    }
  }
}

// Products wide enough for panels, large and small ones: outputs, and sums whose leaves several blocks share, scaled
// and not. The last leaf is shorter.
TEST(CudaMatrix, PanelsHaveTheBytesOfARowAlone) {
  std::mt19937_64 random(39);
  constexpr int64_t kN = 9000, kMost = 130;
  for (const WeightFormat format : kServed) {
    GemmProblem problem(ShapeOf(format, kN, 1088, 256), kMost, {}, &random);
    const Gemm::Args all = problem.Args();
    const std::vector<float> scales = RandomValues(kMost, &random);
    const auto flags = std::make_unique<std::atomic<uint32_t>>(0);
    // Sums of `m` rows from `row` on.
    const auto sums_of = [&](int64_t row, int64_t m, bool scaled) {
      std::vector<int64_t> sums(static_cast<size_t>(m * kN), 0);
      Gemm::Args args = all;
      args.x += row * all.x_stride, args.m = m;
      args.y = nullptr, args.y_stride = kN, args.sums_fixed = sums.data(), args.flags = flags.get();
      args.row_scale = scaled ? scales.data() + row : nullptr;
      MatrixRow().run(args);
      EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
      return sums;
    };
    for (const int64_t m : {17, 33, 70, 130}) {
      Gemm::Args args = all;
      args.m = m;
      const std::vector<float> y = Multiply(MatrixRow(), args);
      const std::vector<int64_t> sums = sums_of(0, m, false), scaled = sums_of(0, m, true);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(FromGrid(sums[i]), y[i]) << problem.Name() << " output " << i;
      for (int64_t r = m - 1; r >= 0; r -= 1 + r / 3) {
        Gemm::Args one = all;
        one.x += r * all.x_stride, one.m = 1;
        const std::vector<float> alone = Multiply(MatrixRow(), one);
        ASSERT_EQ(std::memcmp(alone.data(), y.data() + r * kN, alone.size() * 4), 0) << problem.Name() << " row " << r;
        const std::vector<int64_t> sums_alone = sums_of(r, 1, true);
        ASSERT_TRUE(std::equal(sums_alone.begin(), sums_alone.end(), scaled.begin() + r * kN))
            << problem.Name() << " sums of row " << r << " of " << m;
      }
    }
    EXPECT_EQ(flags->load(), kInRange);
  }
}

// A pair's product is that of its row alone, whatever stands beside it: by positions and, for the larger batches, by
// panels.
TEST(CudaMatrix, ExpertsHaveTheBytesOfProductsOneByOne) {
  std::mt19937_64 random(36);
  constexpr int64_t kTopK = 2, kSlots = 5, kN = 100, kK = 384;
  const KernelRow<ExpertGemm>& experts = ExpertGemm::CudaRows().front();
  ASSERT_EQ(experts.contract, Contract::kMatrix);
  for (const WeightFormat format : kServed) {
    for (const int64_t tokens : {1, 7, 40, 130}) {
      const int64_t pairs = tokens * kTopK;
      std::deque<Packed> matrices;
      std::vector<PackedMatrix> w;
      for (int64_t s = 0; s < kSlots; ++s)
        w.push_back(matrices.emplace_back(PackedShape{format, kN, kK, 64}, &random).matrix());
      std::vector<int32_t> slots, order(static_cast<size_t>(pairs)), slot_at(order), offsets(kSlots + 1);
      for (int64_t p = 0; p < pairs; ++p) slots.push_back(static_cast<int32_t>(random() % (kSlots + 1)) - 1);
      GroupPairsRef({slots.data(), pairs, kSlots, order.data(), slot_at.data(), offsets.data()});
      const std::vector<float> x = RandomValues(pairs * kK, &random, 4), weights = RandomValues(pairs, &random);
      const auto flags = std::make_unique<std::atomic<uint32_t>>(0);
      std::vector<float> y(static_cast<size_t>(pairs * kN), -1), y_alone(y);
      std::vector<int64_t> sums(static_cast<size_t>(tokens * kN), 0), sums_alone(sums);

      ExpertGemm::Args args{x.data(), kK, pairs, kTopK, order.data(), slot_at.data(), offsets.data(), w, w.data()};
      args.y_stride = kN;
      args.tile_end = w[0].tiles();
      args.flags = flags.get();
      args.y = y.data();
      experts.run(args);
      args.y = nullptr;
      args.sums_fixed = sums.data();
      args.weights = weights.data();
      experts.run(args);

      for (int64_t i = 0; i < offsets.back(); ++i) {
        const int32_t pair = order[static_cast<size_t>(i)];
        Gemm::Args one;
        one.x = x.data() + pair / kTopK * kK;
        one.x_stride = kK;
        one.m = 1;
        one.w = &w[static_cast<size_t>(slot_at[static_cast<size_t>(i)])];
        one.y_stride = kN;
        one.tile_end = one.w->tiles();
        one.flags = flags.get();
        one.y = y_alone.data() + i * kN;
        MatrixRow().run(one);
        one.x = x.data() + i * kK;
        one.y = nullptr;
        one.sums_fixed = sums_alone.data() + pair / kTopK * kN;
        one.row_scale = weights.data() + pair;
        MatrixRow().run(one);
      }
      ASSERT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
      EXPECT_EQ(y, y_alone) << FormatRow(format).name << ", " << tokens << " tokens";
      EXPECT_EQ(sums, sums_alone) << FormatRow(format).name << ", " << tokens << " tokens";
    }
  }
}

TEST(CudaMatrix, WhatIsNotServedHasThePortableBytes) {
  std::mt19937_64 random(34);
  for (const auto& [format, leaf] :
       {std::pair{WeightFormat::kF16, 128}, {WeightFormat::kQ4_0, 64}, {WeightFormat::kBF16, 48}}) {
    GemmProblem problem({format, 70, 384, leaf}, 5, {}, &random);
    EXPECT_FALSE(MatrixUnitsServe(*problem.Args().w));
    EXPECT_EQ(Multiply(MatrixRow(), problem.Args()), Multiply(Gemm::CudaRows().back(), problem.Args()));
  }
}

TEST(CudaMatrix, ScalesOfAllSizesAreExact) {
  // One code of 1 a row, scales from the smallest to the largest that float32 holds together with it.
  for (int exponent = 0; exponent <= 254; ++exponent) {
    std::vector<std::byte> block(17);
    block[0] = static_cast<std::byte>(exponent);
    block[1] = std::byte{0x02};  // element 0 is 1
    Guarded<std::byte> tile(FormatRow(WeightFormat::kMxfp4Halves).unit_bytes);
    std::fill_n(tile.data(), tile.size(), std::byte{0});
    for (int64_t row = 0; row < 32; ++row)
      FormatRow(WeightFormat::kMxfp4Halves).store(block.data(), 32, tile.data(), row, 0);
    const auto w = std::make_unique<PackedMatrix>(PackedMatrix{WeightFormat::kMxfp4Halves, 32, 32, 32, tile.data()});
    std::vector<float> x(32, 0.0F);
    x[0] = exponent > 127 ? 0x1p-100F : 1.0F;
    Gemm::Args args;
    args.x = x.data(), args.x_stride = 32, args.m = 1, args.w = w.get(), args.tile_end = 1;
    const float expected = std::ldexp(x[0], exponent - 127);
    const float kept = std::fabs(expected) > kLeafLimit
                           ? kLeafLimit
                           : static_cast<float>(std::nearbyint(static_cast<double>(expected) * kGridScale) * kGridStep);
    EXPECT_EQ(Multiply(MatrixRow(), args), std::vector<float>(32, kept)) << "2^" << exponent - 127;
  }
}

TEST(CudaMatrix, NonFiniteActivationsAreReported) {
  std::mt19937_64 random(35);
  for (const WeightFormat format : kServed) {
    for (const float bad : {INFINITY, -INFINITY, NAN, 3.4e38F}) {
      GemmProblem problem({format, 64, 128, 64}, 3, {}, &random);
      problem.x()[200] = bad;
      uint32_t flags = 0;
      Multiply(MatrixRow(), problem.Args(), &flags);
      EXPECT_NE(flags & (kNonFinite | kSaturated), 0U) << FormatRow(format).name << " " << bad;
    }
  }
}

}  // namespace
}  // namespace trivet::kernels
