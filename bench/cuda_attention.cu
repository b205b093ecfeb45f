// SPDX-License-Identifier: Apache-2.0
// Time of the attention of prompts on a GPU: by tiles and by a query a block, whose bytes must be the same, as a share
// of what multiply-adds reach on the same device.
#include <array>
#include <cstring>
#include <initializer_list>

#include "bench/cuda_timing.cuh"
#include "kernels/attention_tile.h"

namespace trivet::kernels {
namespace {

// Chains of multiply-adds alone, 16 a thread; the sum is stored only when it is one that nothing gives.
constexpr int kPeakBlocks = 132 * 16, kPeakThreads = 256, kPeakChains = 16, kPeakLinks = 4096;
__global__ void MultiplyAdds(float by, float* out) {
  float sums[kPeakChains];
  for (int i = 0; i < kPeakChains; ++i) sums[i] = static_cast<float>(i) * by;
#pragma unroll 8
  for (int n = 0; n < kPeakLinks; ++n) {
#pragma unroll
    for (int i = 0; i < kPeakChains; ++i) sums[i] = std::fma(sums[i], by, by);
  }
  float sum = 0;
  for (const float chain : sums) sum += chain;
  if (sum == 12345.678F) *out = sum;
}

// What FMA units reach.  Units: TFLOP/s.
double Peak() {
  auto* const out = Allocate<float>(1);
  const double time =
      MedianTime(4, [&](int) { MultiplyAdds<<<kPeakBlocks, kPeakThreads, 0, cudaStreamPerThread>>>(0.5F, out); });
  return 2e-6 * kPeakBlocks * kPeakThreads * kPeakChains * kPeakLinks / time;
}

// Codes of numbers, each byte of which is the scale of a row too, near 1.
__global__ void FillCodes(uint8_t* codes, int64_t count, int64_t dim) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const bool scale = i % KvCodeBytes(dim) >= kBlockKeys * dim;
    uint32_t hash = static_cast<uint32_t>(i) * 2654435761U;
    hash ^= hash >> 15, hash *= 2246822519U, hash ^= hash >> 13;
    codes[i] = static_cast<uint8_t>(scale ? 119 + hash % 4 : hash & 0xBF);  // no NaN; 2^-8 to 2^-5
  }
}

struct Shape {
  int32_t q_heads, kv_heads;
  int64_t dim;
  int32_t start, count;  // of the prompt's positions, those that the step computes
};

template <class T>
T* Upload(const std::vector<T>& values) {
  T* const there = Allocate<T>(static_cast<int64_t>(values.size()));
  Require(cudaMemcpy(there, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  return there;
}

// One step of a prompt.
class Step {
 public:
  Step(const Shape& shape, bool codes) : shape_(shape) {
    const int64_t pages = (shape.start + shape.count + kBlockKeys - 1) / kBlockKeys;
    const int64_t rows = pages * shape.kv_heads;
    std::vector<int32_t> order, to_kv;
    for (int64_t page = 0; page < pages; ++page) order.push_back(static_cast<int32_t>(pages - 1 - page));
    for (int32_t head = 0; head < shape.q_heads; ++head) to_kv.push_back(head * shape.kv_heads / shape.q_heads);
    pages_ = Upload(order);
    to_kv_ = Upload(to_kv);
    spans_ = Upload(std::vector<TokenSpan>{{0, shape.count, shape.start, 0, pages_}});
    q_ = Floats(shape.count * shape.q_heads * shape.dim);
    out_ = Allocate<float>(outputs());
    cache_ = {nullptr, nullptr, shape.kv_heads, shape.dim};
    if (codes) {
      cache_.key_codes = Codes(rows), cache_.value_codes = Codes(rows);
    } else {
      cache_.keys = Floats(rows * kBlockKeys * shape.dim), cache_.values = Floats(rows * kBlockKeys * shape.dim);
    }
  }
  ~Step() {
    for (void* memory : std::initializer_list<void*>{pages_, to_kv_, spans_, q_, out_, cache_.keys, cache_.values,
                                                     cache_.key_codes, cache_.value_codes}) {
      cudaFree(memory);
    }
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  Attention::Args Args() const {
    Attention::Args args;
    args.q = q_;
    args.q_stride = shape_.q_heads * shape_.dim;
    args.q_head_stride = shape_.dim;
    args.q_heads = shape_.q_heads;
    args.q_to_kv = to_kv_;
    args.cache = cache_;
    args.scale = 0.125F;
    args.out = out_;
    args.spans = {spans_, 1};
    args.end = int64_t{shape_.count} * shape_.kv_heads;
    return args;
  }
  // What a way writes.
  template <class Way>
  std::vector<float> Outputs(const Way& way) const {
    std::vector<float> out(static_cast<size_t>(outputs()));
    Require(cudaMemset(out_, 255, out.size() * sizeof(float)), "memset");
    Require(cudaDeviceSynchronize(), "memset");
    way();
    Require(cudaStreamSynchronize(cudaStreamPerThread), "attention");
    Require(cudaMemcpy(out.data(), out_, out.size() * sizeof(float), cudaMemcpyDeviceToHost), "download");
    return out;
  }
  // Multiplications and additions of the chains.
  double Operations() const {
    const double pairs = static_cast<double>(shape_.count) * (shape_.start + (shape_.count + 1) / 2.0);
    return 4.0 * static_cast<double>(shape_.dim) * shape_.q_heads * pairs;
  }

 private:
  int64_t outputs() const { return shape_.count * shape_.q_heads * shape_.dim; }
  static float* Floats(int64_t count) {
    auto* const values = Allocate<float>(count);
    FillFloats<<<1024, 256, 0, cudaStreamPerThread>>>(values, count);
    return values;
  }
  std::byte* Codes(int64_t rows) const {
    const int64_t bytes = rows * KvCodeBytes(shape_.dim);
    auto* const codes = Allocate<std::byte>(bytes);
    FillCodes<<<1024, 256, 0, cudaStreamPerThread>>>(reinterpret_cast<uint8_t*>(codes), bytes, shape_.dim);
    return codes;
  }

  Shape shape_;
  int32_t *pages_, *to_kv_;
  TokenSpan* spans_;
  float *q_, *out_;
  KvPages cache_;
};

// Whether both ways gave the same bytes.
bool Run(const Shape& shape, bool codes, double peak) {
  const Step step(shape, codes);
  const Attention::Args args = step.Args();
  const auto by_tiles = [&](int = 0) { AttentionByTiles(args); };
  const auto by_queries = [&](int = 0) { AttentionByQueries(args, true); };
  const std::vector<float> tiles = step.Outputs(by_tiles), queries = step.Outputs(by_queries);
  const bool same = std::memcmp(tiles.data(), queries.data(), tiles.size() * sizeof(float)) == 0;
  const double before = MedianTime(1, by_queries), after = MedianTime(1, by_tiles);  // microseconds
  const double rate = step.Operations() * 1e-6 / after;
  std::printf(
      "%2d / %d heads of %3ld, tokens %5d to %5d, %-6s  %s | a query a block %9.0f us %5.1f TFLOP/s | tiles "
      "%8.0f us %5.1f TFLOP/s (%.2f)\n",
      shape.q_heads, shape.kv_heads, shape.dim, shape.start, shape.start + shape.count, codes ? "codes" : "floats",
      same ? "same bytes" : "OTHER BYTES", before, step.Operations() * 1e-6 / before, after, rate, rate / peak);
  std::fflush(stdout);
  return same;
}

}  // namespace
}  // namespace trivet::kernels

// cuda_attention: whole prompts as one step, and their last 512 tokens. Ends with 1 where bytes differ.
int main() {
  using trivet::kernels::Shape;
  const double peak = trivet::kernels::Peak();
  std::printf("multiply-adds alone: %.1f TFLOP/s\n", peak);
  bool same = true;
  for (const auto& [q_heads, kv_heads, dim] : {std::array<int32_t, 3>{24, 4, 256}, {32, 4, 128}, {32, 8, 64}}) {
    for (const auto& [start, count] : {std::pair{0, 512}, {0, 4096}, {3584, 512}, {0, 12000}, {11488, 512}}) {
      for (const bool codes : {false, true}) {
        same &= trivet::kernels::Run({q_heads, kv_heads, dim, start, count}, codes, peak);
      }
    }
  }
  return same ? 0 : 1;
}
