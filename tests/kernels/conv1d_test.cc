// SPDX-License-Identifier: Apache-2.0
#include "kernels/conv1d.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference.h"
#include "tests/kernels/parity.h"
#include "tests/kernels/recurrent_problem.h"

namespace trivet::kernels {
namespace {

constexpr int64_t kSlots = 4;

// Inputs of a layer over some tokens; the state starts as garbage, as a reused slot does.
class Problem {
 public:
  Problem(int64_t channels, int64_t width, int64_t tokens, std::mt19937_64* random)
      : channels_(channels), width_(width), tokens_(tokens) {
    x_ = RandomValues(tokens * (channels + 3), random);
    taps_ = RandomValues(width * channels, random);
    state_ = RandomValues(kSlots * state_stride(), random, 10);
  }

  Conv1d::Args Args() const {
    Conv1d::Args args;
    args.x = x_.data();
    args.x_stride = channels_ + 3;
    args.taps = taps_.data();
    args.state_stride = state_stride();
    args.channels = channels_;
    args.width = width_;
    args.tokens = tokens_;
    args.end = channels_;
    return args;
  }
  // Runs the spans, all in one step or each in a step of its own, `cut` channels at a time.
  void Run(const KernelRow<Conv1d>& row, std::span<const TokenSpan> spans, bool one_step, int64_t cut,
           Outputs* outputs) const {
    Guarded<float> y(tokens_ * channels_, 1), state(kSlots * state_stride(), 1);
    std::fill_n(y.data(), y.size(), -3.0F);
    std::copy(state_.begin(), state_.end(), state.data());
    Conv1d::Args args = Args();
    args.y = y.data();
    args.state = state.data();
    const size_t at_once = one_step ? spans.size() : 1;
    for (size_t i = 0; i < spans.size(); i += at_once) {
      args.spans = spans.subspan(i, at_once);
      for (args.begin = 0; args.begin < channels_; args.begin += cut) {
        args.end = std::min(args.begin + cut, channels_);
        row.run(args);
      }
    }
    outputs->Take(y);
    outputs->Take(state);
  }

  int64_t state_stride() const { return (width_ - 1) * channels_ + 5; }
  float Input(int64_t t, int64_t c) const { return t < 0 ? 0.0F : x_[static_cast<size_t>(t * (channels_ + 3) + c)]; }

 private:
  int64_t channels_, width_, tokens_;
  std::vector<float> x_, taps_, state_;
};

}  // namespace

void CompareConv1d(RowLog* log) {
  std::mt19937_64 random(41);
  for (const int64_t width : {1, 2, 3, 4, 7}) {
    for (const int64_t channels : {1, 7, 15, 16, 17, 31, 64, 101, 300}) {
      const Problem problem(channels, width, 12, &random);
      // Spans shorter and longer than the window, fresh and continued.
      const std::vector<TokenSpan> spans = {
          {0, 1, 0, 3, nullptr}, {1, 2, 9, 0, nullptr}, {3, 1, 1, 2, nullptr}, {4, 8, 64, 1, nullptr}};
      for (const int64_t cut : {channels, int64_t{13}}) {
        log->Compare<Conv1d>("width " + std::to_string(width) + ", " + std::to_string(channels) + " channels",
                             [&](const auto& row, auto* outputs) { problem.Run(row, spans, true, cut, outputs); });
      }
    }
  }
  if (!log->large()) return;
  const Problem wide(10240, 4, 330, &random);
  const std::vector<TokenSpan> spans = {
      {0, 1, 0, 3, nullptr}, {1, 300, 0, 0, nullptr}, {301, 1, 7, 2, nullptr}, {302, 28, 64, 1, nullptr}};
  log->Compare<Conv1d>("10240 channels",
                       [&](const auto& row, auto* outputs) { wide.Run(row, spans, true, 10240, outputs); });
}

TEST(Conv1d, AnyChunkingGivesTheSameBytesAndState) {
  std::mt19937_64 random(42);
  for (const int64_t width : {1, 2, 4, 6}) {
    const Problem problem(37, width, 70, &random);
    for (const KernelRow<Conv1d>& row : RunnableRowsOf<Conv1d>()) {
      Outputs whole;
      problem.Run(row, Chunks(70, {1000}, 2), true, 37, &whole);
      for (const std::vector<int32_t>& lengths : Chunkings()) {
        Outputs cut;
        problem.Run(row, Chunks(70, lengths, 2), false, 37, &cut);
        EXPECT_TRUE(cut.intact());
        EXPECT_EQ(whole.bytes(), cut.bytes()) << row.name << ", width " << width << ", chunks of " << lengths[0];
      }
    }
  }
}

TEST(Conv1dRef, IsACausalConvolutionAndKeepsTheLastInputs) {
  std::mt19937_64 random(43);
  constexpr int64_t kChannels = 5, kWidth = 4, kTokens = 9;
  const Problem problem(kChannels, kWidth, kTokens, &random);
  Conv1d::Args args = problem.Args();
  std::vector<float> y(kTokens * kChannels), state(static_cast<size_t>(args.state_stride), 99.0F);
  const TokenSpan span{0, kTokens, 0, 0, nullptr};
  args.y = y.data();
  args.state = state.data();
  args.spans = std::span(&span, 1);
  Conv1dRef(args);
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int64_t t = 0; t < kTokens; ++t) {
      double sum = 0;
      for (int64_t j = 0; j < kWidth; ++j) {
        sum += static_cast<double>(args.taps[j * kChannels + c]) *
               static_cast<double>(problem.Input(t - kWidth + 1 + j, c));
      }
      EXPECT_NEAR(y[static_cast<size_t>(t * kChannels + c)], sum / (1 + std::exp(-sum)), 2e-6);
    }
    for (int64_t j = 0; j < kWidth - 1; ++j) {
      EXPECT_EQ(state[static_cast<size_t>(j * kChannels + c)], problem.Input(kTokens - kWidth + 1 + j, c));
    }
  }
  EXPECT_EQ(state.back(), 99.0F) << "the gap between slots";
}

}  // namespace trivet::kernels
