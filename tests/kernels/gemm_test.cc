// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/reference.h"
#include "tests/kernels/gemm_problem.h"

namespace trivet::kernels {
namespace {

constexpr int64_t kRowCounts[] = {1, 2, 3, 11, 12, 13, 25};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kLimitOnGrid = int64_t{1} << 50;

// Formats in turn, and for those with blocks a begin inside a block, where leaves allow one: cuts lie on their borders.
PackedShape Shape(uint64_t number, int64_t n, int64_t k, int64_t leaf, Backend backend = Backend::kCpu) {
  const WeightFormatRow& format = FormatRow(FormatOn(backend, Formats()[number % Formats().size()].format));
  const uint64_t step = leaf % 32 == 0 ? 32 : 6;
  const int64_t phase =
      format.columns == 2 ? 0 : static_cast<int64_t>(number / 16 * step % static_cast<uint64_t>(format.columns));
  return {format.format, n, k, leaf, phase};
}

// The values of exact sums of every row of `args`, starting at zero.
std::vector<int64_t> FixedSums(const KernelRow<Gemm>& row, Gemm::Args args, uint32_t* flags = nullptr) {
  std::vector<int64_t> sums(static_cast<size_t>(args.m * args.w->n), 0);
  std::atomic<uint32_t> met{0};
  args.sums_fixed = sums.data();
  args.y_stride = args.w->n;
  args.flags = &met;
  row.run(args);
  if (flags != nullptr) *flags = met.load();
  return sums;
}

void CompareProblem(RowLog* log, GemmProblem* problem, const std::string& remark) {
  log->Compare<Gemm>(problem->Name() + remark, [&](const KernelRow<Gemm>& row, Outputs* outputs) {
    problem->Run(row, problem->Args(), outputs);
  });
}

// Signs of NaN depend on operand order and on the machine, so they must not reach a sum.
void CompareNonFinite(RowLog* log) {
  std::mt19937_64 random(20);
  const float bad[] = {kInf, -kInf, kNaN, -kNaN, 3e38F, -3e38F};
  for (int round = 0; round < 200; ++round) {
    const int64_t m = kRowCounts[random() % std::size(kRowCounts)];
    GemmForm form = FormNumber(random() % 64);
    form.numerics = Numerics::kExact;
    GemmProblem problem(Shape(random() >> 8, 70, 67, round % 2 == 0 ? 16 : 32, log->backend()), m, form, &random);
    for (uint64_t i = 0, count = 1 + random() % 40; i < count; ++i) {
      problem.x()[random() % problem.x().size()] = bad[random() % std::size(bad)];
    }
    if (round % 4 == 0) problem.scale()[random() % problem.scale().size()] = bad[random() % std::size(bad)];
    CompareProblem(log, &problem, " with non-finite inputs");
  }
}

// Widths of real models, at every row count of decoding and two of prefill; too many bytes for every row of a test.
void CompareLarge(RowLog* log) {
  std::mt19937_64 random(10);
  uint64_t number = 0;
  for (const WeightFormatRow& format : Formats()) {
    for (const auto& [n, k, leaf] : {std::tuple{65, 5120, 256}, {33, 17408, 128}, {160, 7168, 256}}) {
      for (const int64_t m : {1, 2, 3, 4, 5, 8, 13, 16, 65}) {
        GemmProblem problem({FormatOn(log->backend(), format.format), n, k, leaf}, m,
                            FormNumber(number++ * 33, log->backend()), &random);
        CompareProblem(log, &problem, "");
      }
    }
  }
  for (uint64_t form = 0; form < 32; ++form) {
    GemmProblem problem({WeightFormat::kBF16, 1031, 2048, 256}, 1 + static_cast<int64_t>(form % 16),
                        FormNumber(form | 32, log->backend()), &random);
    CompareProblem(log, &problem, "");
  }
}

}  // namespace

void CompareGemm(RowLog* log) {
  std::mt19937_64 random(11);
  uint64_t number = 0;
  for (const int64_t m : kRowCounts) {
    for (const int64_t n : {1, 31, 32, 33, 97, 128, 160}) {
      for (const int64_t k : {1, 2, 15, 17, 127, 128, 129, 301}) {
        for (const int64_t leaf : {16, 32, 64, 128, 256}) {
          GemmProblem problem(Shape(random() >> 8, n, k, leaf, log->backend()), m, FormNumber(number++, log->backend()),
                              &random);
          CompareProblem(log, &problem, "");
        }
      }
    }
  }
  for (uint64_t form = 0; form < 64; ++form) {
    for (const WeightFormatRow& format : Formats()) {
      constexpr int64_t kRows[] = {1, 13, 97};
      GemmProblem problem({FormatOn(log->backend(), format.format), 97, 1031, 128}, kRows[form % 3],
                          FormNumber(form, log->backend()), &random);
      CompareProblem(log, &problem, "");
    }
  }
  CompareNonFinite(log);
  if (log->large()) CompareLarge(log);
}

TEST(GemmRef, IsTheMatrixProduct) {
  std::mt19937_64 random(12);
  for (uint64_t form = 0; form < 4; ++form) {
    constexpr int64_t kM = 3, kN = 35, kK = 301;
    GemmProblem problem({WeightFormat::kBF16, kN, kK, 64}, kM, FormNumber(form & 1), &random);
    Gemm::Args args = problem.Args();
    std::vector<float> y(kM * kN);
    std::atomic<uint32_t> flags{0};
    args.y = y.data();
    args.y_stride = kN;
    args.flags = &flags;
    GemmRef(args);
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const double product = static_cast<double>(args.x[m * args.x_stride + k]) *
                                 static_cast<double>(problem.weights().values()[static_cast<size_t>(n * kK + k)]);
          sum += product;
          magnitude += std::fabs(product);
        }
        // At most 64 roundings in a leaf's chain, half a grid step a leaf, five more roundings of the total.
        EXPECT_NEAR(y[static_cast<size_t>(m * kN + n)], sum, magnitude * 70 * 0x1p-24 + 5 * 0x1p-31);
      }
    }
    EXPECT_EQ(flags.load(), kInRange);
  }
}

TEST(Gemm, ARowsBytesDoNotDependOnItsBatch) {
  std::mt19937_64 random(13);
  for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
    for (const int64_t m : kRowCounts) {
      GemmProblem problem(Shape(random(), 161, 203, 32), m, {}, &random);
      const Gemm::Args args = problem.Args();
      const std::vector<int64_t> batch = FixedSums(row, args);
      const auto n = static_cast<size_t>(args.w->n);
      for (int64_t i = 0; i < m; ++i) {
        Gemm::Args alone = args;
        alone.m = 1;
        alone.x += i * args.x_stride;
        const std::vector<int64_t> sums = FixedSums(row, alone);
        EXPECT_TRUE(std::equal(sums.begin(), sums.end(), batch.begin() + i * static_cast<int64_t>(n)))
            << row.name << ": row " << i << " of " << m;
      }
    }
  }
}

TEST(Gemm, FastRowsDoNotDependOnTheirBatchEither) {
  std::mt19937_64 random(14);
  constexpr int64_t kM = 25, kN = 161;
  for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
    GemmProblem problem({WeightFormat::kBF16, kN, 203, 32}, kM, {Numerics::kFast, false, false, false, false}, &random);
    Gemm::Args args = problem.Args();
    std::vector<float> batch(kM * kN), alone(kN);
    args.y_stride = kN;
    args.y = batch.data();
    row.run(args);
    args.m = 1;
    args.y = alone.data();
    for (int64_t i = 0; i < kM; ++i, args.x += args.x_stride) {
      row.run(args);
      EXPECT_EQ(std::memcmp(alone.data(), batch.data() + i * kN, kN * sizeof(float)), 0) << row.name << ", row " << i;
    }
  }
}

TEST(Gemm, TileRangesTogetherGiveTheWhole) {
  std::mt19937_64 random(15);
  for (uint64_t form = 0; form < 32; ++form) {
    const int64_t m = form % 3 == 0 ? 1 : 13;
    GemmProblem problem({WeightFormat::kBF16, 32 * 9 - 3, 77, 32}, m, FormNumber(form), &random);
    for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
      Outputs whole, cut;
      problem.Run(row, problem.Args(), &whole);
      std::vector<Gemm::Args> parts(5, problem.Args());
      const int64_t borders[] = {0, 1, 1, 4, 8, 9};
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i].tile_begin = borders[i];
        parts[i].tile_end = borders[i + 1];
      }
      problem.RunParts(row, parts, &cut);
      EXPECT_TRUE(cut.intact());
      EXPECT_EQ(whole.bytes(), cut.bytes()) << row.name << ", " << problem.Name();
    }
  }
}

TEST(Gemm, AColumnRangeTouchesNothingElse) {
  std::mt19937_64 random(16);
  GemmProblem problem({WeightFormat::kF32, 97, 33, 32}, 3, {}, &random);
  for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
    Gemm::Args args = problem.Args();
    Guarded<float> y(3 * args.y_stride);
    std::fill_n(y.data(), y.size(), -7.0F);
    std::atomic<uint32_t> flags{0};
    args.flags = &flags;
    args.y = y.data();
    args.tile_begin = 1;
    args.tile_end = 2;
    row.run(args);
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t column = i % args.y_stride;
      EXPECT_EQ(y[i] != -7.0F, column >= 32 && column < 64)
          << row.name << ", row " << i / args.y_stride << ", " << column;
    }
    EXPECT_TRUE(y.Intact());
  }
}

// Columns [begin, end) of a packed matrix as a matrix of its own: whole storage units, as loading cuts them.
struct Cut {
  Cut(const PackedMatrix& whole, int64_t begin, int64_t end) {
    const WeightFormatRow& format = FormatRow(whole.format);
    const int64_t first = begin / format.columns, units = (end + format.columns - 1) / format.columns - first;
    storage = Guarded<std::byte>(whole.tiles() * units * format.unit_bytes);
    for (int64_t tile = 0; tile < whole.tiles(); ++tile) {
      std::copy_n(whole.data + tile * whole.tile_bytes() + first * format.unit_bytes, units * format.unit_bytes,
                  storage.data() + tile * units * format.unit_bytes);
    }
    matrix = {whole.format, whole.n, end - begin, whole.leaf, storage.data(), begin % format.columns};
  }
  Guarded<std::byte> storage{0};
  PackedMatrix matrix;
};

// The property that makes rank counts invisible: K cut at leaf borders, each part packed by itself, summed as integers.
TEST(Gemm, RanksThatHoldPartsOfKSumToTheWhole) {
  std::mt19937_64 random(17);
  constexpr int64_t kN = 45, kM = 5;
  int64_t compared = 0;
  for (const int64_t leaf : {16, 32, 64, 128, 256}) {
    for (const WeightFormatRow& format : Formats()) {
      const int64_t leaves = 9, k = leaves * leaf - 7;
      GemmProblem problem({format.format, kN, k, leaf}, kM, {Numerics::kExact, true, false, true, true}, &random);
      for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
        const std::vector<int64_t> whole = FixedSums(row, problem.Args());
        for (int64_t ranks = 2; ranks <= 8; ++ranks) {
          std::vector<int64_t> sum(whole.size(), 0);
          for (int64_t rank = 0; rank < ranks; ++rank) {
            const int64_t begin = leaves * rank / ranks * leaf, end = std::min(leaves * (rank + 1) / ranks * leaf, k);
            if (begin == end) continue;
            const Cut part(problem.weights().matrix(), begin, end);
            Gemm::Args args = problem.Args();
            args.w = &part.matrix;
            args.x += begin;
            const std::vector<int64_t> sums = FixedSums(row, args);
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += sums[i];
          }
          ASSERT_EQ(sum, whole) << row.name << ", leaf " << leaf << ", " << ranks << " ranks";
          compared += static_cast<int64_t>(sum.size());
        }
      }
    }
  }
  std::printf("compared %d sums\n", static_cast<int>(compared));
}

// Pads of a matrix (rows of zeros at the end, columns of zeros at the end) change no sum.
TEST(Gemm, ZeroColumnsAtTheEndChangeNoSum) {
  std::mt19937_64 random(18);
  constexpr int64_t kN = 33, kK = 70, kPadded = 128;
  GemmProblem problem({WeightFormat::kBF16, kN, kK, 32}, 3, {}, &random);
  std::vector<float> wide(kN * kPadded, 0.0F);
  for (int64_t n = 0; n < kN; ++n) {
    std::copy_n(problem.weights().values().begin() + n * kK, kK, wide.begin() + n * kPadded);
  }
  const Packed padded({WeightFormat::kBF16, kN, kPadded, 32}, std::move(wide));
  std::vector<float> x(3 * kPadded, 0.0F);
  for (int64_t m = 0; m < 3; ++m)
    std::copy_n(problem.Args().x + m * problem.Args().x_stride, kK, x.begin() + m * kPadded);
  for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
    Gemm::Args args = problem.Args();
    args.w = &padded.matrix();
    args.x = x.data();
    args.x_stride = kPadded;
    EXPECT_EQ(FixedSums(row, args), FixedSums(row, problem.Args())) << row.name;
  }
}

TEST(Gemm, PartsOutsideTheGridSaturateAndAreReported) {
  // One leaf per column pair: outputs are w[n][k] * x[k] for each k apart.
  constexpr int64_t kN = 33;
  const Packed ones({WeightFormat::kF32, kN, 2, 2}, std::vector<float>(kN * 2, 1.0F));
  struct {
    float x;
    int64_t sum;
    uint32_t flags;
  } const cases[] = {
      {1048576.0F, kLimitOnGrid, kInRange},
      {-1048576.0F, -kLimitOnGrid, kInRange},
      {1048577.0F, kLimitOnGrid, kSaturated},
      {-2e6F, -kLimitOnGrid, kSaturated},
      {3e38F, kLimitOnGrid, kSaturated},
      {kInf, kLimitOnGrid, kNonFinite},
      {-kInf, -kLimitOnGrid, kNonFinite},
      {kNaN, kLimitOnGrid, kNonFinite},
      {-kNaN, kLimitOnGrid, kNonFinite},
      {0x1p-31F, 0, kInRange},
      {0x1.8p-30F, 2, kInRange},
      {-0.0F, 0, kInRange},
  };
  for (const auto& test : cases) {
    const float x[] = {test.x, 0.0F};
    for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
      for (const float scale : {1.0F, 0.5F}) {
        const float scaled[] = {test.x / scale, 0.0F};
        if (std::isfinite(x[0]) != std::isfinite(scaled[0])) continue;
        Gemm::Args args;
        args.x = scaled;
        args.m = 1;
        args.w = &ones.matrix();
        args.row_scale = &scale;
        args.tile_end = 2;
        uint32_t flags = 0;
        EXPECT_EQ(FixedSums(row, args, &flags), std::vector<int64_t>(kN, test.sum)) << row.name << ", x = " << test.x;
        EXPECT_EQ(flags, test.flags) << row.name << ", x = " << test.x;
      }
    }
  }
}

TEST(Gemm, OneBadRowIsReportedAndSpoilsNoOther) {
  std::mt19937_64 random(19);
  GemmProblem problem({WeightFormat::kBF16, 65, 96, 32}, 13, {}, &random);
  GemmProblem spoiled = GemmProblem({WeightFormat::kBF16, 65, 96, 32}, 13, {}, &random);
  spoiled.x() = problem.x();
  Gemm::Args args = problem.Args(), bad = problem.Args();
  bad.x = spoiled.x().data() + 1;
  spoiled.x()[static_cast<size_t>(1 + 4 * args.x_stride + 50)] = kInf;
  for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
    uint32_t flags = 0;
    const std::vector<int64_t> good = FixedSums(row, args, &flags);
    EXPECT_EQ(flags, kInRange);
    const std::vector<int64_t> found = FixedSums(row, bad, &flags);
    EXPECT_EQ(flags, kNonFinite) << row.name;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i] == good[i], i / 65 != 4) << row.name << ", row " << i / 65;
    }
  }
}

TEST(Gemm, FastSumsRaiseNoFlag) {
  const Packed one({WeightFormat::kF32, 1, 2, 2}, {1.0F, 1.0F});
  const float x[] = {3e38F, 3e38F};
  for (const KernelRow<Gemm>& row : RunnableRowsOf<Gemm>()) {
    std::atomic<uint32_t> flags{0};
    float y = 0;
    Gemm::Args args;
    args.x = x;
    args.m = 1;
    args.w = &one.matrix();
    args.y = &y;
    args.numerics = Numerics::kFast;
    args.tile_end = 1;
    args.flags = &flags;
    row.run(args);
    EXPECT_EQ(y, kInf) << row.name;
    EXPECT_EQ(flags.load(), kInRange) << row.name;
  }
}

}  // namespace trivet::kernels
