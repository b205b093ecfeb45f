// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_fetch.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"
#include "kernels/fixed_point.h"
#include "kernels/lanes.h"
#include "kernels/norm.h"
#include "kernels/norm_lanes.cuh"

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
__device__ float NarrowLaneSum(const float* x, int64_t n, int lane) {
  float sum = 0;
#pragma unroll 8
  for (int64_t i = lane; i < n; i += kLanes) sum += x[i] * x[i];
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
    const float sum =
        HalveLanes(wide ? LaneSum(squares + lane * stride, CeilDiv(n - lane, kLanes)) : NarrowLaneSum(x, n, lane));
    if (lane == 0) total = sum;
  }
  __syncthreads();
  return total;
}

// Begins a kernel that will read a weight of n.
__device__ void BeginWith(const float* weight, int64_t n) {
  Fetch(weight, n * static_cast<int64_t>(sizeof(float)), threadIdx.x, blockDim.x);
  BeginKernel();
}

__global__ void RmsNormKernel(const RmsNorm::Args args) {
  BeginWith(args.weight, args.n);
  const int64_t row = args.begin + blockIdx.x;
  const float* x = args.x + args.x_rows.At(row);
  float* y = args.y + args.y_rows.At(row);
  const float inverse = 1.0F / std::sqrt(BlockSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) y[i] = x[i] * inverse * (args.offset + args.weight[i]);
}

// A sum as it is added to x, and zero in its place.
__device__ float TakeSum(const AddNorm::Args& args, int64_t i) {
  if (args.sums_fixed != nullptr) {
    const float sum = FromGrid(args.sums_fixed[i]);
    args.sums_fixed[i] = 0;
    return sum;
  }
  const float sum = args.sums_fast[i];
  args.sums_fast[i] = 0;
  return sum;
}

__global__ void AddNormKernel(const AddNorm::Args args) {
  BeginWith(args.weight, args.n);
  const int64_t row = (args.begin + blockIdx.x) * args.n;
  float* x = args.x + row;
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) x[i] += TakeSum(args, row + i);
  __syncthreads();
  const float inverse = 1.0F / std::sqrt(BlockSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
    args.y[row + i] = x[i] * inverse * (args.offset + args.weight[i]);
  }
}

// A wide row, which its threads hold in registers; weights come while the kernel before this one ends.
constexpr int kHeldThreads = 1024, kHeld = static_cast<int>(kWidestRow) / kHeldThreads;
static_assert(kHeld * kHeldThreads == kWidestRow);

__global__ void __launch_bounds__(kHeldThreads) AddNormWideKernel(const AddNorm::Args args) {
  extern __shared__ __align__(16) float squares[];
  __shared__ float total;
  const int n = static_cast<int>(args.n), thread = static_cast<int>(threadIdx.x);
  const int stride = static_cast<int>(SquaresStride(args.n));
  const int64_t row = (args.begin + blockIdx.x) * args.n;
  float x[kHeld], weight[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = thread + j * kHeldThreads;
    weight[j] = i < n ? args.weight[i] : 0.0F;
  }
  BeginKernel();
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = thread + j * kHeldThreads;
    x[j] = i < n ? args.x[row + i] : 0.0F;
    if (i < n) x[j] += args.sums_fixed != nullptr ? FromGrid(args.sums_fixed[row + i]) : args.sums_fast[row + i];
  }
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = thread + j * kHeldThreads;
    if (i < n) squares[i % static_cast<int>(kLanes) * stride + i / static_cast<int>(kLanes)] = x[j] * x[j];
  }
  __syncthreads();
  if (thread < kLanes) {
    const float sum = HalveLanes(LaneSum(squares + thread * stride, CeilDiv(n - thread, kLanes)));
    if (thread == 0) total = sum;
  }
  // What the sum does not need is written while it is made.
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = thread + j * kHeldThreads;
    if (i >= n) continue;
    args.x[row + i] = x[j];
    if (args.sums_fixed != nullptr) args.sums_fixed[row + i] = 0;
    if (args.sums_fast != nullptr) args.sums_fast[row + i] = 0;
  }
  __syncthreads();
  const float inverse = 1.0F / std::sqrt(total / static_cast<float>(n) + args.eps);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = thread + j * kHeldThreads;
    if (i < n) args.y[row + i] = x[j] * inverse * (args.offset + weight[j]);
  }
}

__global__ void L2NormKernel(const L2Norm::Args args) {
  BeginKernel();
  const int64_t row = args.begin + blockIdx.x;
  float* x = args.x + args.rows.At(row);
  const float inverse = 1.0F / std::sqrt(BlockSquares(x, args.n) + 1e-6F);
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) x[i] = x[i] * inverse * args.ScaleOf(row);
}

__global__ void GatedNormKernel(const GatedNorm::Args args) {
  BeginWith(args.weight, args.n);
  const int64_t row = args.begin + blockIdx.x;
  float* x = args.x + args.x_rows.At(row);
  const float* gate = args.gate + args.gate_rows.At(row);
  const float inverse = 1.0F / std::sqrt(BlockSquares(x, args.n) / static_cast<float>(args.n) + args.eps);
  for (int64_t i = threadIdx.x; i < args.n; i += blockDim.x) {
    x[i] = x[i] * inverse * args.weight[i] * Silu<ScalarOps>(gate[i]);
  }
}

// Whether a row's squares stand in shared memory, and their bytes there.
bool IsWide(int64_t n) { return n >= kWideRow && n <= kWidestRow; }
size_t SharedBytes(int64_t n) { return IsWide(n) ? static_cast<size_t>(kLanes * SquaresStride(n)) * sizeof(float) : 0; }

template <class Args>
void Launch(void (*kernel)(Args), const Args& args, std::string_view row) {
  if (args.begin >= args.end) return;
  StartKernel({static_cast<unsigned>(args.end - args.begin), IsWide(args.n) ? kWideThreads : kNarrowThreads,
               SharedBytes(args.n)},
              kernel, args);
  CheckLaunch(row);
}

void AddNormCuda(const AddNorm::Args& args) {
  if (!IsWide(args.n)) return Launch<AddNorm::Args>(AddNormKernel, args, "add_norm/cuda");
  if (args.begin >= args.end) return;
  StartKernel({static_cast<unsigned>(args.end - args.begin), kHeldThreads, SharedBytes(args.n)}, AddNormWideKernel,
              args);
  CheckLaunch("add_norm/cuda");
}

void RmsNormCuda(const RmsNorm::Args& args) { Launch<RmsNorm::Args>(RmsNormKernel, args, "rms_norm/cuda"); }
void L2NormCuda(const L2Norm::Args& args) { Launch<L2Norm::Args>(L2NormKernel, args, "l2_norm/cuda"); }
void GatedNormCuda(const GatedNorm::Args& args) { Launch<GatedNorm::Args>(GatedNormKernel, args, "gated_norm/cuda"); }

}  // namespace

std::span<const KernelRow<RmsNorm>> RmsNorm::CudaRows() {
  static constexpr KernelRow<RmsNorm> kRows[] = {{"rms_norm/cuda", kCudaTarget, RmsNormCuda}};
  return kRows;
}
std::span<const KernelRow<AddNorm>> AddNorm::CudaRows() {
  static constexpr KernelRow<AddNorm> kRows[] = {{"add_norm/cuda", kCudaTarget, AddNormCuda}};
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
