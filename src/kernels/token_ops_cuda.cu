// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_formats.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"
#include "kernels/token_ops.h"

namespace trivet::kernels {
namespace {

constexpr int kThreads = 256;

// One element a thread.
template <WeightFormat kFormat>
__global__ void EmbedKernel(const Embed::Args args, const PackedMatrix table, int64_t tile_bytes) {
  BeginKernel();
  const int64_t i = GlobalThread(), t = args.begin + blockIdx.y;
  if (i >= table.k) return;
  const int64_t row = args.tokens[t] - args.first_id;
  const bool held = row >= 0 && row < args.real;
  const std::byte* tile = table.data + row / kTileRows * tile_bytes;
  args.x[t * table.k + i] = held ? LoadElement<kFormat>(tile, row % kTileRows, i) : 0.0F;
}

void EmbedCuda(const Embed::Args& args) {
  const PackedMatrix& table = *args.table;
  ForRows(args.begin, args.end, [&](int64_t begin, unsigned count) {
    Embed::Args part = args;
    part.begin = begin;
    const dim3 grid(BlocksFor(table.k, kThreads), count);
    ForFormat(table.format, [&]<WeightFormat kFormat>() {
      StartKernel({grid, kThreads}, EmbedKernel<kFormat>, part, table, table.tile_bytes());
    });
  });
  CheckLaunch("embed/cuda");
}

// One pair of channels a thread.
__global__ void RopeKernel(const Rope::Args args) {
  BeginKernel();
  const int64_t pair = GlobalThread(), t = args.begin + blockIdx.y;
  if (pair >= args.heads * args.half) return;
  const int64_t i = pair % args.half;
  float* x = args.x + t * args.stride + pair / args.half * args.head_stride;
  const float cos = args.cos[t * args.half + i], sin = args.sin[t * args.half + i];
  const float a = x[i], b = x[i + args.half];
  x[i] = a * cos - b * sin;
  x[i + args.half] = b * cos + a * sin;
}

void RopeCuda(const Rope::Args& args) {
  ForRows(args.begin, args.end, [&](int64_t begin, unsigned count) {
    Rope::Args part = args;
    part.begin = begin;
    StartKernel({dim3(BlocksFor(args.heads * args.half, kThreads), count), kThreads}, RopeKernel, part);
  });
  CheckLaunch("rope/cuda");
}

__global__ void AddBiasKernel(const AddBias::Args args) {
  BeginKernel();
  const int64_t n = GlobalThread(), m = args.begin + blockIdx.y;
  const int64_t row = args.rows == nullptr ? 0 : args.rows[m];
  if (n < args.n && row >= 0) args.x[m * args.stride + n] += args.bias[row * args.n + n];
}

void AddBiasCuda(const AddBias::Args& args) {
  ForRows(args.begin, args.end, [&](int64_t begin, unsigned count) {
    AddBias::Args part = args;
    part.begin = begin;
    StartKernel({dim3(BlocksFor(args.n, kThreads), count), kThreads}, AddBiasKernel, part);
  });
  CheckLaunch("add_bias/cuda");
}

__global__ void AddSumsKernel(const AddSums::Args args) {
  BeginKernel();
  const int64_t i = args.begin + GlobalThread();
  if (i >= args.end) return;
  args.x[i] += args.sums_fixed != nullptr ? FromGrid(args.sums_fixed[i]) : args.sums_fast[i];
}

void AddSumsCuda(const AddSums::Args& args) {
  if (args.begin >= args.end) return;
  StartKernel({BlocksFor(args.end - args.begin, kThreads), kThreads}, AddSumsKernel, args);
  CheckLaunch("add_sums/cuda");
}

__global__ void RoundSumsKernel(const RoundSums::Args args) {
  BeginKernel();
  const int64_t i = args.begin + GlobalThread();
  if (i >= args.end) return;
  args.y[i] = FromGrid(args.sums[i]);
  args.sums[i] = 0;
}

void RoundSumsCuda(const RoundSums::Args& args) {
  if (args.begin >= args.end) return;
  StartKernel({BlocksFor(args.end - args.begin, kThreads), kThreads}, RoundSumsKernel, args);
  CheckLaunch("round_sums/cuda");
}

__global__ void MapKernel(const Map::Args args) {
  BeginKernel();
  const int64_t i = args.begin + GlobalThread();
  if (i >= args.end) return;
  args.y[i] = Apply(args.function, args.parameter, args.x[i * args.x_stride]);
}

void MapCuda(const Map::Args& args) {
  if (args.begin >= args.end) return;
  StartKernel({BlocksFor(args.end - args.begin, kThreads), kThreads}, MapKernel, args);
  CheckLaunch("map/cuda");
}

__global__ void CopyRowsKernel(const CopyRows::Args args) {
  BeginKernel();
  const int64_t n = GlobalThread(), i = args.begin + blockIdx.y;
  if (n >= args.n) return;
  const int64_t row = args.rows == nullptr ? i : args.rows[i];
  args.y[args.y_rows.At(i) + n] = args.x[args.x_rows.At(row) + n];
}

void CopyRowsCuda(const CopyRows::Args& args) {
  ForRows(args.begin, args.end, [&](int64_t begin, unsigned count) {
    CopyRows::Args part = args;
    part.begin = begin;
    StartKernel({dim3(BlocksFor(args.n, kThreads), count), kThreads}, CopyRowsKernel, part);
  });
  CheckLaunch("copy_rows/cuda");
}

}  // namespace

std::span<const KernelRow<Embed>> Embed::CudaRows() {
  static constexpr KernelRow<Embed> kRows[] = {{"embed/cuda", kCudaTarget, EmbedCuda}};
  return kRows;
}
std::span<const KernelRow<Rope>> Rope::CudaRows() {
  static constexpr KernelRow<Rope> kRows[] = {{"rope/cuda", kCudaTarget, RopeCuda}};
  return kRows;
}
std::span<const KernelRow<AddBias>> AddBias::CudaRows() {
  static constexpr KernelRow<AddBias> kRows[] = {{"add_bias/cuda", kCudaTarget, AddBiasCuda}};
  return kRows;
}
std::span<const KernelRow<AddSums>> AddSums::CudaRows() {
  static constexpr KernelRow<AddSums> kRows[] = {{"add_sums/cuda", kCudaTarget, AddSumsCuda}};
  return kRows;
}
std::span<const KernelRow<RoundSums>> RoundSums::CudaRows() {
  static constexpr KernelRow<RoundSums> kRows[] = {{"round_sums/cuda", kCudaTarget, RoundSumsCuda}};
  return kRows;
}
std::span<const KernelRow<Map>> Map::CudaRows() {
  static constexpr KernelRow<Map> kRows[] = {{"map/cuda", kCudaTarget, MapCuda}};
  return kRows;
}
std::span<const KernelRow<CopyRows>> CopyRows::CudaRows() {
  static constexpr KernelRow<CopyRows> kRows[] = {{"copy_rows/cuda", kCudaTarget, CopyRowsCuda}};
  return kRows;
}

}  // namespace trivet::kernels
