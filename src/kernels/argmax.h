// SPDX-License-Identifier: Apache-2.0
// The greedy token of rows of logits, as far as one rank has their columns: the largest logit, the lower token of
// equals.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/kernel.h"

namespace trivet::kernels {

/// A token with its logit as one number, so that the token to take is the largest of them, in whatever order parts and
/// ranks are compared: the larger logit, and of equals (zeros of both signs are) the lower token. A NaN or +infinity,
/// which no logit may be, is above all others; of several the lowest token, so that what is broken is named. 0: no
/// token.
///   token  from 0 to 2^31 - 1
constexpr uint64_t ArgmaxKey(float logit, int64_t token) {
  constexpr uint32_t kSign = 0x80000000U, kInfinity = 0x7F800000U;
  uint32_t bits = std::bit_cast<uint32_t>(logit);
  if (bits == kSign) bits = 0;
  const uint32_t nan = (bits & ~kSign) > kInfinity ? 1 : 0;
  // As an unsigned number of the same order.
  uint32_t order = (bits & kSign) != 0 ? ~bits : bits | kSign;
  if (nan != 0 || bits == kInfinity) order = UINT32_MAX;
  const auto low = static_cast<uint32_t>(INT32_MAX - token) << 1 | nan;
  return uint64_t{order} << 32 | low;
}

/// The token of a key that has one.
constexpr int32_t ArgmaxToken(uint64_t key) {
  return INT32_MAX - static_cast<int32_t>(static_cast<uint32_t>(key) >> 1);
}

/// Its logit; -0 has become 0.
constexpr float ArgmaxLogit(uint64_t key) {
  constexpr uint32_t kSign = 0x80000000U;
  const auto order = static_cast<uint32_t>(key >> 32);
  if (order == UINT32_MAX) {
    return (key & 1) != 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  }
  return std::bit_cast<float>((order & kSign) != 0 ? order & ~kSign : ~order);
}

/// Runs of columns of a row whose largest keys are found apart: enough for a whole GPU to take part in one row.
inline constexpr int64_t kArgmaxParts = 64;

/// keys[i] = the largest key of run i % kArgmaxParts of row rows[i / kArgmaxParts]; run p of n columns is
/// [n p / kArgmaxParts, n (p + 1) / kArgmaxParts). Runs without a column get 0, rows of -1 are left as they are.
///   logits  [*, n] float32, row stride `stride`; column c is token first + c. What stands behind column n, such as
///   pads
///           of the vocabulary, is not looked at
///   rows    [R];  keys: [R, kArgmaxParts];  range: keys [begin, end)
struct Argmax {
  struct Args {
    const float* logits = nullptr;
    int64_t stride = 0;
    int64_t n = 0;
    int64_t first = 0;
    const int32_t* rows = nullptr;
    uint64_t* keys = nullptr;
    int64_t begin = 0, end = 0;
  };
  static constexpr std::string_view kName = "argmax";
  static std::span<const KernelRow<Argmax>> Rows();
  static std::span<const KernelRow<Argmax>> CudaRows();
};

}  // namespace trivet::kernels
