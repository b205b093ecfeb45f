// SPDX-License-Identifier: Apache-2.0
#include "kernels/delta_net.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference.h"
#include "tests/kernels/parity.h"
#include "tests/kernels/recurrent_problem.h"

namespace trivet::kernels {
namespace {

constexpr int64_t kSlots = 4;

struct Shape {
  std::vector<int32_t> v_to_k;
  int64_t k_heads, dk, dv;
};

// Inputs of a layer over some tokens; the state starts as garbage, as a reused slot does.
class Problem {
 public:
  Problem(Shape shape, int64_t tokens, std::mt19937_64* random) : shape_(std::move(shape)), tokens_(tokens) {
    qkv_ = RandomValues(tokens * qkv_stride(), random);
    ba_ = RandomValues(tokens * ba_stride(), random, 4);
    a_log_ = RandomValues(v_heads(), random, 2);
    dt_bias_ = RandomValues(v_heads(), random, 2);
    state_ = RandomValues(kSlots * state_stride(), random, 10);
  }

  DeltaNet::Args Args() const {
    DeltaNet::Args args;
    args.qkv = qkv_.data();
    args.qkv_stride = qkv_stride();
    args.ba = ba_.data();
    args.ba_stride = ba_stride();
    args.a_log = a_log_.data();
    args.dt_bias = dt_bias_.data();
    args.v_to_k = shape_.v_to_k.data();
    args.k_heads = shape_.k_heads;
    args.v_heads = v_heads();
    args.dk = shape_.dk;
    args.dv = shape_.dv;
    args.state_stride = state_stride();
    args.end = v_heads();
    return args;
  }
  // Runs the spans, all in one step or each in a step of its own, heads `cut` at a time.
  void Run(const KernelRow<DeltaNet>& row, std::span<const TokenSpan> spans, bool one_step, int64_t cut,
           Outputs* outputs) const {
    Guarded<float> out(tokens_ * v_heads() * shape_.dv, 1), state(kSlots * state_stride(), 1);
    std::fill_n(out.data(), out.size(), -3.0F);
    std::copy(state_.begin(), state_.end(), state.data());
    DeltaNet::Args args = Args();
    args.out = out.data();
    args.state = state.data();
    const size_t at_once = one_step ? spans.size() : 1;
    for (size_t i = 0; i < spans.size(); i += at_once) {
      args.spans = spans.subspan(i, at_once);
      for (args.begin = 0; args.begin < v_heads(); args.begin += cut) {
        args.end = std::min(args.begin + cut, v_heads());
        row.run(args);
      }
    }
    outputs->Take(out);
    outputs->Take(state);
  }

  int64_t v_heads() const { return static_cast<int64_t>(shape_.v_to_k.size()); }
  int64_t qkv_stride() const { return 2 * shape_.k_heads * shape_.dk + v_heads() * shape_.dv + 3; }
  int64_t ba_stride() const { return 2 * v_heads() + 1; }
  int64_t state_stride() const { return v_heads() * shape_.dk * shape_.dv + 7; }

 private:
  Shape shape_;
  int64_t tokens_;
  std::vector<float> qkv_, ba_, a_log_, dt_bias_, state_;
};

}  // namespace

void CompareDeltaNet(RowLog* log) {
  std::mt19937_64 random(31);
  const std::vector<Shape> heads = {{{0}, 1, 0, 0}, {{0, 0, 1, 1}, 2, 0, 0}, {{0, 0, 0, 1, 2}, 3, 0, 0}};
  for (const int64_t dk : {1, 3, 16, 33}) {
    for (const int64_t dv : {1, 8, 15, 16, 17, 32, 48, 64, 72, 80, 100, 128}) {
      for (Shape shape : heads) {
        shape.dk = dk;
        shape.dv = dv;
        const Problem problem(shape, 9, &random);
        // A fresh sequence, one that goes on, and one token.
        const std::vector<TokenSpan> spans = {{0, 4, 0, 2, nullptr}, {4, 4, 17, 0, nullptr}, {8, 1, 1, 3, nullptr}};
        log->Compare<DeltaNet>(
            "dk " + std::to_string(dk) + ", dv " + std::to_string(dv),
            [&](const auto& row, auto* out) { problem.Run(row, spans, true, problem.v_heads(), out); });
      }
    }
  }
  if (!log->large()) return;
  for (const int64_t width : {64, 128, 256}) {
    const Problem problem({{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}, 4, width, width}, 150, &random);
    const std::vector<TokenSpan> spans = {
        {0, 1, 0, 2, nullptr}, {1, 147, 17, 0, nullptr}, {148, 1, 1, 3, nullptr}, {149, 1, 400, 1, nullptr}};
    log->Compare<DeltaNet>("width " + std::to_string(width),
                           [&](const auto& row, auto* out) { problem.Run(row, spans, true, 12, out); });
  }
}

TEST(DeltaNet, AnyChunkingGivesTheSameBytesAndState) {
  std::mt19937_64 random(32);
  for (const int64_t dv : {20, 64, 80}) {
    const Problem problem({{0, 0, 1}, 2, 12, dv}, 70, &random);
    for (const KernelRow<DeltaNet>& row : RunnableRowsOf<DeltaNet>()) {
      Outputs whole;
      problem.Run(row, Chunks(70, {1000}, 1), true, 3, &whole);
      for (const std::vector<int32_t>& lengths : Chunkings()) {
        Outputs cut;
        problem.Run(row, Chunks(70, lengths, 1), false, 3, &cut);
        EXPECT_TRUE(cut.intact());
        EXPECT_EQ(whole.bytes(), cut.bytes()) << row.name << ", dv " << dv << ", chunks of " << lengths[0];
      }
    }
  }
}

TEST(DeltaNet, HeadRangesTogetherGiveTheWhole) {
  std::mt19937_64 random(33);
  const Problem problem({{0, 0, 1, 1, 1}, 2, 16, 32}, 12, &random);
  const TokenSpan spans[] = {{0, 5, 0, 0, nullptr}, {5, 7, 3, 2, nullptr}};
  for (const KernelRow<DeltaNet>& row : RunnableRowsOf<DeltaNet>()) {
    Outputs whole, cut;
    problem.Run(row, spans, true, 5, &whole);
    problem.Run(row, spans, true, 2, &cut);
    EXPECT_EQ(whole.bytes(), cut.bytes()) << row.name;
  }
}

TEST(DeltaNet, OtherSlotsAreNotTouched) {
  std::mt19937_64 random(34);
  const Problem problem({{0}, 1, 4, 16}, 3, &random);
  const TokenSpan spans[] = {{0, 3, 0, 2, nullptr}};
  const TokenSpan none[] = {{0, 0, 5, 1, nullptr}};
  const int64_t out_bytes = 3 * 16 * 4, slot_bytes = problem.state_stride() * 4;
  for (const KernelRow<DeltaNet>& row : RunnableRowsOf<DeltaNet>()) {
    Outputs before, after;
    problem.Run(row, none, true, 1, &before);
    problem.Run(row, spans, true, 1, &after);
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      const auto at = static_cast<size_t>(out_bytes + slot * slot_bytes);
      const bool same =
          std::memcmp(before.bytes().data() + at, after.bytes().data() + at, static_cast<size_t>(slot_bytes)) == 0;
      EXPECT_EQ(same, slot != 2) << row.name << ", slot " << slot;
    }
  }
}

TEST(DeltaNetRef, IsTheGatedDeltaRule) {
  std::mt19937_64 random(35);
  constexpr int64_t kDk = 6, kDv = 5, kTokens = 20;
  const Problem problem({{0, 0, 1}, 2, kDk, kDv}, kTokens, &random);
  DeltaNet::Args args = problem.Args();
  std::vector<float> out(kTokens * 3 * kDv), state(static_cast<size_t>(args.state_stride));
  const TokenSpan span{0, kTokens, 0, 0, nullptr};
  args.out = out.data();
  args.state = state.data();
  args.spans = std::span(&span, 1);
  DeltaNetRef(args);
  for (int64_t h = 0; h < 3; ++h) {
    double s[kDk][kDv] = {};
    for (int64_t t = 0; t < kTokens; ++t) {
      const float* q = args.qkv + t * args.qkv_stride + args.v_to_k[h] * kDk;
      const float* k = q + 2 * kDk;
      const float* v = args.qkv + t * args.qkv_stride + 4 * kDk + h * kDv;
      const double b = static_cast<double>(args.ba[t * args.ba_stride + h]);
      const double a = static_cast<double>(args.ba[t * args.ba_stride + 3 + h]) + static_cast<double>(args.dt_bias[h]);
      const double decay = std::exp(-std::exp(static_cast<double>(args.a_log[h])) * std::log1p(std::exp(a)));
      for (int64_t c = 0; c < kDv; ++c) {
        double read = 0, sum = 0;
        for (int64_t i = 0; i < kDk; ++i) read += (s[i][c] *= decay) * static_cast<double>(k[i]);
        const double update = (static_cast<double>(v[c]) - read) / (1 + std::exp(-b));
        for (int64_t i = 0; i < kDk; ++i) {
          s[i][c] += static_cast<double>(k[i]) * update;
          sum += s[i][c] * static_cast<double>(q[i]);
        }
        EXPECT_NEAR(out[static_cast<size_t>((t * 3 + h) * kDv + c)], sum, 1e-5);
      }
    }
  }
}

}  // namespace trivet::kernels
