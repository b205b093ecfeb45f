// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"
#include "kernels/cuda_launch.cuh"
#include "quant/quantize.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 128;

// Where a token's keys and values go.
struct KvPlace {
  int64_t page, slot;
};

__device__ KvPlace PlaceOf(const KvWrite::Args& args, int64_t t) {
  const TokenSpan span = args.spans.data()[SpanIndexOf(args.spans, t)];
  const int64_t position = span.start + t - span.token_begin;
  return {span.pages[position / kBlockKeys], position % kBlockKeys};
}

// The values of token t, a head after the other.
__device__ const float* ValuesOf(const KvWrite::Args& args, int64_t t) {
  return (args.values == nullptr ? args.kv + args.cache.kv_heads * args.cache.head_dim : args.values) +
         t * args.kv_stride;
}

// One channel of one head of one token a thread.
__global__ void KvWriteKernel(const KvWrite::Args args) {
  BeginKernel();
  const int64_t dim = args.cache.head_dim, value_dim = args.cache.ValueDim(), heads = args.cache.kv_heads;
  const int64_t i = GlobalThread(), t = args.begin + blockIdx.y;
  if (i >= heads * (dim + value_dim)) return;
  const KvPlace place = PlaceOf(args, t);
  if (i < heads * dim) {
    const int64_t h = i / dim, d = i % dim;
    args.cache.keys[args.cache.Offset(place.page, h) + d * kBlockKeys + place.slot] = args.kv[t * args.kv_stride + i];
    return;
  }
  const int64_t at = i - heads * dim, h = at / value_dim, d = at % value_dim;
  args.cache.values[args.cache.ValueOffset(place.page, h) + place.slot * value_dim + d] = ValuesOf(args, t)[at];
}

// The key or the value of one head of one token a warp, as codes: all keys, then all values.
__global__ void KvCodesKernel(const KvWrite::Args args) {
  BeginKernel();
  const int64_t heads = args.cache.kv_heads, t = args.begin + blockIdx.y;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, h = row % heads;
  if (row >= 2 * heads) return;
  const bool key = row < heads;
  const int64_t dim = key ? args.cache.head_dim : args.cache.ValueDim();
  const float* from = (key ? args.kv + t * args.kv_stride : ValuesOf(args, t)) + h * dim;
  uint32_t largest = 0;  // as quant::LargestMagnitude has it
  for (int64_t d = threadIdx.x; d < dim; d += kWarp) largest = max(largest, __float_as_uint(from[d]) & 0x7FFFFFFFU);
  const uint8_t scale = quant::Fp8Exponent(__uint_as_float(__reduce_max_sync(kAllLanes, largest)));
  const KvPlace place = PlaceOf(args, t);
  std::byte* const codes = key ? args.cache.KeyCodes(place.page, h) : args.cache.ValueCodes(place.page, h);
  for (int64_t d = threadIdx.x; d < dim; d += kWarp) {
    codes[key ? d * kBlockKeys + place.slot : place.slot * dim + d] = ToKvCode(from[d], scale);
  }
  if (threadIdx.x == 0) codes[kBlockKeys * dim + place.slot] = std::byte{scale};
}

void KvWriteCuda(const KvWrite::Args& args) {
  const bool codes = args.cache.key_codes != nullptr;
  const int64_t heads = args.cache.kv_heads, channels = heads * (args.cache.head_dim + args.cache.ValueDim());
  ForRows(args.begin, args.end, [&](int64_t begin, unsigned count) {
    KvWrite::Args part = args;
    part.begin = begin;
    if (codes) {
      constexpr int kRows = kThreads / kWarp;
      StartKernel({dim3(BlocksFor(2 * heads, kRows), count), dim3(kWarp, kRows)}, KvCodesKernel, part);
    } else {
      StartKernel({dim3(BlocksFor(channels, kThreads), count), kThreads}, KvWriteKernel, part);
    }
  });
  CheckLaunch("kv_write/cuda");
}

}  // namespace

std::span<const KernelRow<KvWrite>> KvWrite::CudaRows() {
  static constexpr KernelRow<KvWrite> kRows[] = {{"kv_write/cuda", kCudaTarget, KvWriteCuda}};
  return kRows;
}

}  // namespace trivet::kernels
