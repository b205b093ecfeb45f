// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_gemm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>

#include "kernels/reference.h"
#include "tests/kernels/packed.h"

namespace trivet::kernels {
namespace {

// One layer of experts: pairs sorted by slot, a matrix for each slot, the last slot without one.
class Experts {
 public:
  Experts(int64_t tokens, int64_t top_k, int64_t slots, const PackedShape& shape, std::mt19937_64* random)
      : tokens_(tokens),
        top_k_(top_k),
        shape_(shape),
        x_stride_(tokens % 2 == 0 ? (shape.k + 3) / 4 * 4 : shape.k + 3) {
    const int64_t pairs = tokens * top_k;
    for (int64_t s = 0; s < slots; ++s) {
      matrices_.emplace_back(shape, random);
      w_.push_back(matrices_.back().matrix());
    }
    w_.back().n = slots > 1 ? 0 : w_.back().n;
    // A third of the pairs belong to experts of other ranks.
    for (int64_t p = 0; p < pairs; ++p) {
      slots_.push_back((*random)() % 3 == 0 ? -1 : static_cast<int32_t>((*random)() % static_cast<uint64_t>(slots)));
    }
    order_.resize(slots_.size());
    slot_at_.resize(slots_.size());
    offsets_.resize(static_cast<size_t>(slots + 1));
    GroupPairsRef({slots_.data(), pairs, slots, order_.data(), slot_at_.data(), offsets_.data()});
    x_ = RandomValues(pairs * x_stride_, random, 4);
    weights_ = RandomValues(pairs, random);
  }

  ExpertGemm::Args Args(Numerics numerics) const {
    ExpertGemm::Args args;
    args.x = x_.data();
    args.x_stride = x_stride_;
    args.pairs = tokens_ * top_k_;
    args.top_k = top_k_;
    args.order = order_.data();
    args.slot_at = slot_at_.data();
    args.offsets = offsets_.data();
    args.w = w_;
    args.w_device = w_.data();
    args.y_stride = shape_.n + 5;
    args.numerics = numerics;
    args.tile_end = matrices_.front().matrix().tiles();
    args.gemm = &Gemm::Rows().front();
    return args;
  }

  void Run(const KernelRow<ExpertGemm>& row, Numerics numerics, bool into_sums, Outputs* outputs) const {
    ExpertGemm::Args args = Args(numerics);
    const auto flags = std::make_unique<std::atomic<uint32_t>>(0);
    Guarded<float> y(args.pairs * args.y_stride, 1);
    Guarded<int64_t> fixed(tokens_ * args.y_stride);
    std::fill_n(y.data(), y.size(), 0.5F);
    for (int64_t i = 0; i < fixed.size(); ++i) fixed[i] = i * 1000003;
    args.flags = flags.get();
    args.weights = into_sums ? weights_.data() : nullptr;
    (!into_sums                     ? static_cast<void>(args.y = y.data())
     : numerics == Numerics::kExact ? static_cast<void>(args.sums_fixed = fixed.data())
                                    : static_cast<void>(args.sums_fast = y.data()));
    row.run(args);
    outputs->Take(y);
    outputs->Take(fixed);
    outputs->Take(flags->load());
  }

  const std::vector<int32_t>& order() const { return order_; }
  const std::vector<int32_t>& slots() const { return slots_; }
  const std::vector<int32_t>& offsets() const { return offsets_; }
  const std::deque<Packed>& matrices() const { return matrices_; }
  const std::vector<float>& x() const { return x_; }
  const std::vector<float>& weights() const { return weights_; }

 private:
  int64_t tokens_, top_k_;
  PackedShape shape_;
  int64_t x_stride_;  // a multiple of four floats for even numbers of tokens
  std::deque<Packed> matrices_;
  std::vector<PackedMatrix> w_;
  std::vector<int32_t> slots_, order_, slot_at_, offsets_;
  std::vector<float> x_, weights_;
};

}  // namespace

void CompareExpertGemm(RowLog* log) {
  std::mt19937_64 random(81);
  uint64_t number = 0;
  for (const int64_t tokens : {1, 2, 3, 40}) {
    for (const int64_t slots : {1, 2, 9}) {
      for (const WeightFormatRow& format : Formats()) {
        const int64_t n = 1 + static_cast<int64_t>(random() % 100), k = 1 + static_cast<int64_t>(random() % 300);
        const Experts experts(tokens, 1 + static_cast<int64_t>(random() % 4), slots,
                              {FormatOn(log->backend(), format.format), n, k, 32}, &random);
        const Numerics numerics = WithinRank((number & 1) == 0 ? Numerics::kExact : Numerics::kFast, log->backend());
        const bool sums = (number++ & 2) != 0;
        log->Compare<ExpertGemm>(
            std::string(format.name) + " tokens=" + std::to_string(tokens) + " slots=" + std::to_string(slots) +
                (sums ? " sums" : " y"),
            [&](const KernelRow<ExpertGemm>& row, Outputs* outputs) { experts.Run(row, numerics, sums, outputs); });
      }
    }
  }
  if (!log->large()) return;
  // A layer of many narrow experts: one token, a batch, a prefill.
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kMxfp4, WeightFormat::kFp8}) {
    for (const int64_t tokens : {1, 16, 130}) {
      const Experts up(tokens, 8, 24, {FormatOn(log->backend(), format), 192, 2048, 256}, &random),
          down(tokens, 8, 24, {FormatOn(log->backend(), format), 256, 768, 128}, &random);
      log->Compare<ExpertGemm>("wide, into y", [&](const KernelRow<ExpertGemm>& row, Outputs* outputs) {
        up.Run(row, Numerics::kExact, false, outputs);
      });
      for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
        log->Compare<ExpertGemm>("wide, into sums", [&](const KernelRow<ExpertGemm>& row, Outputs* outputs) {
          down.Run(row, WithinRank(numerics, log->backend()), true, outputs);
        });
      }
    }
  }
}

void CompareGroupPairs(RowLog* log) {
  std::mt19937_64 random(82);
  for (const int64_t pairs : {1, 2, 31, 32, 33, 1000, 5000}) {
    for (const int64_t slots : {1, 5, 128, 300}) {
      std::vector<int32_t> slot(static_cast<size_t>(pairs));
      for (int32_t& s : slot) s = static_cast<int32_t>(random() % static_cast<uint64_t>(slots + 1)) - 1;
      log->Compare<GroupPairs>("pairs=" + std::to_string(pairs) + " slots=" + std::to_string(slots),
                               [&](const KernelRow<GroupPairs>& row, Outputs* outputs) {
                                 Guarded<int32_t> order(pairs), slot_at(pairs), offsets(slots + 1);
                                 row.run({slot.data(), pairs, slots, order.data(), slot_at.data(), offsets.data()});
                                 outputs->Take(order);
                                 outputs->Take(slot_at);
                                 outputs->Take(offsets);
                               });
    }
  }
}

TEST(GroupPairs, SortsBySlotAndKeepsTheOrderOfPairs) {
  const int32_t slots[] = {2, -1, 0, 2, 0, -1, 2};
  int32_t order[7], slot_at[7], offsets[4];
  GroupPairsRef({slots, 7, 3, order, slot_at, offsets});
  EXPECT_EQ(std::vector(order, order + 7), (std::vector<int32_t>{2, 4, 0, 3, 6, 1, 5}));
  EXPECT_EQ(std::vector(slot_at, slot_at + 7), (std::vector<int32_t>{0, 0, 2, 2, 2, -1, -1}));
  EXPECT_EQ(std::vector(offsets, offsets + 4), (std::vector<int32_t>{0, 2, 2, 5}));
}

TEST(ExpertGemm, IsTheSumOverATokensExperts) {
  std::mt19937_64 random(83);
  constexpr int64_t kTokens = 5, kTopK = 3, kN = 33, kK = 40;
  const Experts experts(kTokens, kTopK, 4, {WeightFormat::kBF16, kN, kK, 16}, &random);
  ExpertGemm::Args args = experts.Args(Numerics::kExact);
  std::vector<int64_t> sums(static_cast<size_t>(kTokens * args.y_stride));
  std::atomic<uint32_t> flags{0};
  args.sums_fixed = sums.data();
  args.weights = experts.weights().data();
  args.flags = &flags;
  ExpertGemmRef(args);
  std::vector<double> expected(sums.size());
  for (size_t i = 0; i < experts.order().size(); ++i) {
    const auto pair = static_cast<size_t>(experts.order()[i]);
    const int32_t slot = experts.slots()[pair];
    if (slot < 0 || slot == 3) continue;  // another rank's, or the slot without a matrix
    const std::vector<float>& w = experts.matrices()[static_cast<size_t>(slot)].values();
    for (size_t n = 0; n < kN; ++n) {
      double dot = 0;
      for (size_t k = 0; k < kK; ++k) {
        dot += static_cast<double>(experts.x()[i * (kK + 3) + k]) * static_cast<double>(w[n * kK + k]);
      }
      expected[pair / kTopK * static_cast<size_t>(args.y_stride) + n] +=
          static_cast<double>(experts.weights()[pair]) * dot;
    }
  }
  // Forty products of magnitude below 16 in chains of 16, three pairs.
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(FromGrid(sums[i]), expected[i], 3 * 40 * 16 * 18 * 0x1p-24) << i;
}

}  // namespace trivet::kernels
