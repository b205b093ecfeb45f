// SPDX-License-Identifier: Apache-2.0
// The specification of Gemm, one output at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/mx_block.h"
#include "kernels/reference.h"
#include "kernels/weight_element.h"

namespace trivet::kernels {
namespace {

// The leaf by a chain over columns [begin, end).
float ChainLeaf(const float* x, const float* w, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t k = begin; k < end; ++k) sum = std::fma(x[k], w[k], sum);
  return sum;
}

// A block of MXFP4 weights.
struct MxWeights {
  int32_t codes[kMxColumns];
  float scale;
};

// The leaf of `blocks` blocks.
float MxLeaf(const MxBlock* x, const MxWeights* w, int64_t blocks) {
  float leaf = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    int32_t sum = 0;  // at most 32 * 12 * 2^22
    for (int64_t k = 0; k < kMxColumns; ++k) sum += w[b].codes[k] * x[b].q[k];
    leaf = std::fma(static_cast<float>(sum), w[b].scale * x[b].factor, leaf);
  }
  return leaf;
}

const float* RowOf(const Gemm::Args& args, int64_t m) {
  return args.x + (args.x_rows == nullptr ? m : args.x_rows[m]) * args.x_stride;
}

// Output n of row m, whose leaf of columns [begin, end) is leaf_of(begin, end).
template <class LeafOf>
void One(const Gemm::Args& args, int64_t m, int64_t n, const LeafOf& leaf_of) {
  const PackedMatrix& w = *args.w;
  const float scale = args.row_scale == nullptr ? 1.0F : args.row_scale[m];
  const int64_t at = (args.y_rows == nullptr ? m : args.y_rows[m]) * args.y_stride + n;
  int64_t fixed = 0;
  float fast = 0;
  uint32_t flags = kInRange;
  for (int64_t k = 0; k < w.k; k += w.leaf) {
    const float leaf = leaf_of(k, std::min(k + w.leaf, w.k));
    fixed += ToGrid(scale * leaf, &flags);
    fast += leaf;
  }
  const bool exact = args.numerics == Numerics::kExact;
  if (args.y != nullptr) {
    args.y[at] = exact ? FromGrid(fixed) : fast;
  } else if (exact) {
    args.sums_fixed[at] += fixed;
  } else {
    args.sums_fast[at] += scale * fast;
  }
  if (flags != kInRange && exact) args.flags->fetch_or(flags, std::memory_order_relaxed);
}

void ByChains(const Gemm::Args& args, int64_t n_end) {
  const PackedMatrix& w = *args.w;
  std::vector<float> weights(static_cast<size_t>(w.k));
  for (int64_t n = args.tile_begin * kTileRows; n < n_end; ++n) {
    for (int64_t k = 0; k < w.k; ++k) weights[static_cast<size_t>(k)] = Element(w, n, k);
    for (int64_t m = 0; m < args.m; ++m) {
      const float* x = RowOf(args, m);
      One(args, m, n, [&](int64_t begin, int64_t end) { return ChainLeaf(x, weights.data(), begin, end); });
    }
  }
}

// Row n of the weights.
std::vector<MxWeights> MxWeightsOf(const PackedMatrix& w, int64_t n) {
  const std::byte* tile = w.data + n / kTileRows * w.tile_bytes();
  const auto parts =
      w.format == WeightFormat::kMxfp4 ? PartsOf<WeightFormat::kMxfp4> : PartsOf<WeightFormat::kMxfp4Halves>;
  std::vector<MxWeights> blocks(static_cast<size_t>((w.k + kMxColumns - 1) / kMxColumns));
  for (int64_t k = 0; k < w.k; k += kMxColumns) {
    MxWeights& block = blocks[static_cast<size_t>(k / kMxColumns)];
    for (int64_t i = 0; i < kMxColumns; ++i) {
      const quant::BlockElement element = parts(tile, n % kTileRows, w.phase + k + i);
      block.codes[i] = MxCode(element.code);
      block.scale = MxWeightScale(static_cast<uint8_t>(element.scale));
    }
  }
  return blocks;
}

void ByIntegers(const Gemm::Args& args, int64_t n_end) {
  const PackedMatrix& w = *args.w;
  std::vector<std::vector<MxBlock>> x(static_cast<size_t>(args.m));
  for (int64_t m = 0; m < args.m; ++m) {
    for (int64_t k = 0; k < w.k; k += kMxColumns) {
      x[static_cast<size_t>(m)].push_back(MxBlockOf(RowOf(args, m) + k, std::min(kMxColumns, w.k - k)));
    }
  }
  for (int64_t n = args.tile_begin * kTileRows; n < n_end; ++n) {
    const std::vector<MxWeights> weights = MxWeightsOf(w, n);
    for (int64_t m = 0; m < args.m; ++m) {
      const MxBlock* row = x[static_cast<size_t>(m)].data();
      One(args, m, n, [&](int64_t begin, int64_t end) {
        const int64_t first = begin / kMxColumns, last = (end + kMxColumns - 1) / kMxColumns;
        return MxLeaf(row + first, weights.data() + first, last - first);
      });
    }
  }
}

}  // namespace

void GemmRef(const Gemm::Args& args) {
  const int64_t n_end = std::min(args.tile_end * kTileRows, args.w->n);
  MxServes(*args.w) ? ByIntegers(args, n_end) : ByChains(args, n_end);
}

}  // namespace trivet::kernels
