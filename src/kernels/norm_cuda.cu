// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"
#include "kernels/lanes.h"
#include "kernels/norm.h"

namespace trivet::kernels {
namespace {

// Rows from kWideRow on get a large block, which squares them side by side into shared memory; what is left is sixteen
// chains of additions. Rows above kWidestRow do without, as narrow ones do.
constexpr int64_t kWideRow = 1024, kWidestRow = 11264;
constexpr int kWideThreads = 512, kNarrowThreads = 64;

// Floats between the squares of two lanes: whole vectors of four, an odd number of them, so that the sixteen lanes'
// vectors lie in different banks.
__host__ __device__ constexpr int64_t SquaresStride(int64_t n) { return (CeilDiv(n, 4 * kLanes) / 2 * 2 + 1) * 4; }

// The sum of one lane's squares of a narrow row.
__device__ float LaneSum(const float* x, int64_t n, int lane) {
  float sum = 0;
#pragma unroll 8
  for (int64_t i = lane; i < n; i += kLanes) sum += x[i] * x[i];
  return sum;
}

// The sum of one lane's squares where they stand in shared memory.
__device__ float LaneSum(const float* squares, int64_t count) {
  float sum = 0;
  int64_t i = 0;
#pragma unroll 4
  for (; i + 4 <= count; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(squares + i);
    sum = sum + four.x;
    sum = sum + four.y;
    sum = sum + four.z;
    sum = sum + four.w;
  }
  for (; i < count; ++i) sum += squares[i];
  return sum;
}

// Sum of squares of x[0 .. n) in the order of lanes.h, by the threads of a block; every thread gets it.
__device__ float BlockSquares(const float* x, int64_t n) {
  extern __shared__ __align__(16) float squares[];
  __shared__ float total;
  const int lane = static_cast<int>(threadIdx.x);
  const bool wide = blockDim.x == kWideThreads;
  const int64_t stride = SquaresStride(n);
  if (wide) {
    for (int64_t i = lane; i < n; i += kWideThreads) squares[i % kLanes * stride + i / kLanes] = x[i] * x[i];
    __syncthreads();
  }
  if (lane < kLanes) {
    float sum = wide ? LaneSum(squares + lane * stride, CeilDiv(n - lane, kLanes)) : LaneSum(x, n, lane);
    constexpr uint32_t kHalfWarp = (1U << kLanes) - 1;
    // Lane i takes lane i + half, as HalvingSum does.
    for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(kHalfWarp, sum, half, kLanes);
    if (lane == 0) total = sum;
  }
  __syncthreads();
  return total;
}

__global__ void RmsNormKernel(const RmsNorm::Args args) {
  const int64_t row = args.begin + blockIdx.x;
  const float* x = args.x + args.x_rows.At(row);
  float* y = args.y + args.y_rows.At(row);
  const float inverse = 1.0F / std::sqrt(BlockSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) y[i] = x[i] * inverse * (args.offset + args.weight[i]);
}

__global__ void L2NormKernel(const L2Norm::Args args) {
  float* x = args.x + args.rows.At(args.begin + blockIdx.x);
  const float inverse = 1.0F / std::sqrt(BlockSquares(x, args.n) + 1e-6F);
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) x[i] = x[i] * inverse * args.scale;
}

__global__ void GatedNormKernel(const GatedNorm::Args args) {
  const int64_t row = args.begin + blockIdx.x;
  float* x = args.x + args.x_rows.At(row);
  const float* gate = args.gate + args.gate_rows.At(row);
  const float inverse = 1.0F / std::sqrt(BlockSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
    x[i] = x[i] * inverse * args.weight[i] * Silu<ScalarOps>(gate[i]);
  }
}

template <class Args>
void Launch(void (*kernel)(Args), const Args& args, std::string_view row) {
  if (args.begin >= args.end) return;
  const bool wide = args.n >= kWideRow && args.n <= kWidestRow;
  const size_t shared = wide ? static_cast<size_t>(kLanes * SquaresStride(args.n)) * sizeof(float) : 0;
  kernel<<<static_cast<unsigned>(args.end - args.begin), wide ? kWideThreads : kNarrowThreads, shared>>>(args);
  CheckLaunch(row);
}

void RmsNormCuda(const RmsNorm::Args& args) { Launch<RmsNorm::Args>(RmsNormKernel, args, "rms_norm/cuda"); }
void L2NormCuda(const L2Norm::Args& args) { Launch<L2Norm::Args>(L2NormKernel, args, "l2_norm/cuda"); }
void GatedNormCuda(const GatedNorm::Args& args) { Launch<GatedNorm::Args>(GatedNormKernel, args, "gated_norm/cuda"); }

}  // namespace

std::span<const KernelRow<RmsNorm>> RmsNorm::CudaRows() {
  static constexpr KernelRow<RmsNorm> kRows[] = {{"rms_norm/cuda", kCudaTarget, RmsNormCuda}};
  return kRows;
}
std::span<const KernelRow<L2Norm>> L2Norm::CudaRows() {
  static constexpr KernelRow<L2Norm> kRows[] = {{"l2_norm/cuda", kCudaTarget, L2NormCuda}};
  return kRows;
}
std::span<const KernelRow<GatedNorm>> GatedNorm::CudaRows() {
  static constexpr KernelRow<GatedNorm> kRows[] = {{"gated_norm/cuda", kCudaTarget, GatedNormCuda}};
  return kRows;
}

}  // namespace trivet::kernels
