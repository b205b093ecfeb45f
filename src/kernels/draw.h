// SPDX-License-Identifier: Apache-2.0
// A token drawn from a row of logits by a temperature, of the best k, of the best with a part p of the mass, of those
// with at least a part of the best one's probability, or of all.
//
// What is drawn is defined by integers, whose sums do not depend on order: any row of the family, on any device, in any
// number of parts, draws the same token.
//
// 1. Tokens have an order, best first: the larger logit, and of equals (zeros of both signs are) the lower token.
// 2. A token's weight is WeightOf(logit, best, scale): 2^30 times its probability over that of the best one, rounded to
//    an integer. It is 0 where that is below 2^-31: such a token is not drawn. A weight below min_weight is 0, too.
// 3. Top-k keeps the first k tokens of the order, or all.
// 4. Top-p keeps, of these, the fewest, best first, whose weights add up to at least ceil(p * the sum of the weights
//    that top-k kept). So the token that crosses p is kept.
// 5. With W the sum of the weights that are left, the token drawn is the first one, in ascending order of tokens, up to
//    which (itself included) the weights that are left add up to more than floor(u * W), u in [0, 1).
//
// Range: 2^31 tokens of weight 2^30 add up to 2^61, below a 64-bit sum's end. p and u have 53 bits behind the point,
// and their products with a sum 128, of which no bit is lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/draw_rule.h"
#include "kernels/argmax.h"
#include "kernels/elementary.h"
#include "kernels/kernel.h"

namespace trivet::kernels {

/// The weight of the best token.
inline constexpr float kBestWeight = 1073741824.0F;  // 2^30

/// A token's weight. All steps in float32: half of a step is added, and the rest cut off.
///   logit  at most `best`, which is finite; -infinity weighs 0
constexpr uint32_t WeightOf(float logit, float best, float scale) {
  const float e = Exp<ScalarOps>((logit - best) * scale);
  return static_cast<uint32_t>(e * kBestWeight + 0.5F);
}

/// floor(a * fraction / 2^53).
///   a  below 2^62;  fraction: at most 2^53
constexpr uint64_t FractionOf(uint64_t a, uint64_t fraction) {
  // Halves of 32 bits, since not every compiler for a GPU has integers of 128 bits.
  constexpr uint64_t kLow = 0xFFFFFFFFU;
  const uint64_t low = (a & kLow) * (fraction & kLow);
  const uint64_t middle = (a >> 32) * (fraction & kLow) + (low >> 32);
  const uint64_t cross = (a & kLow) * (fraction >> 32) + (middle & kLow);
  const uint64_t high = (a >> 32) * (fraction >> 32) + (middle >> 32) + (cross >> 32);
  return high << 11 | (cross & kLow) >> 21;
}

/// ceil(a * fraction / 2^53).
constexpr uint64_t FractionAbove(uint64_t a, uint64_t fraction) {
  const uint64_t below = FractionOf(a, fraction);
  // The product's low 53 bits, by arithmetic modulo 2^64.
  return (a * fraction & (kDrawOne - 1)) == 0 ? below : below + 1;
}

/// Draws a token of row rows[i] by rules[i], for i in the range; rows of -1 and rules that take the best token are left
/// as they are.
///   logits  [*, n] float32, row stride `stride`: the whole vocabulary
///   rows    [R];  rules: [R]
///   keys    [R, parts]: in: ArgmaxKey of the best token or of a broken logit is the largest of a row's; out: the first
///           is the drawn token's, and the others are 0. A row whose best is broken or -infinity keeps that key
///   range   rows [begin, end)
struct Draw {
  struct Args {
    const float* logits = nullptr;
    int64_t stride = 0;
    int64_t n = 0;
    const int32_t* rows = nullptr;
    const DrawRule* rules = nullptr;
    uint64_t* keys = nullptr;
    int64_t parts = 1;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "draw";
  static std::span<const KernelRow<Draw>> Rows();
  static std::span<const KernelRow<Draw>> CudaRows();
};

/// Whether there is something to draw from where the best token has this key: it is a number.
constexpr bool CanDraw(uint64_t best) {
  constexpr uint32_t kLowest = 0x7FFFFFU;  // -infinity in the order of ArgmaxKey
  const auto order = static_cast<uint32_t>(best >> 32);
  return order > kLowest && order != UINT32_MAX;
}

/// On the processor: puts the keys of all rows there.
///   draw(logits, rule, best)  the drawn token's key, where the largest logit is `best`
template <class DrawOne>
void DrawRows(const Draw::Args& args, const DrawOne& draw) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t row = args.rows[i];
    if (row < 0 || args.rules[i].TakesBest()) continue;
    uint64_t* keys = args.keys + i * args.parts;
    const uint64_t best = *std::max_element(keys, keys + args.parts);
    std::fill_n(keys, args.parts, 0);
    const std::span<const float> logits(args.logits + row * args.stride, static_cast<size_t>(args.n));
    keys[0] = CanDraw(best) ? draw(logits, args.rules[i], ArgmaxLogit(best)) : best;
  }
}

}  // namespace trivet::kernels
