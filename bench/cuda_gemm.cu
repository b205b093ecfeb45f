// SPDX-License-Identifier: Apache-2.0
// Time of the product's rows for a GPU, as a share of what a plain read of the same bytes reaches on the same device.
#include "bench/cuda_timing.cuh"
#include "kernels/gemm.h"

namespace trivet::kernels {
namespace {

// Weights of one measurement, in copies that together outgrow the device's caches.
constexpr int64_t kRotatedBytes = int64_t{1} << 30;
// Room for 4096 rows of the widest input.
constexpr int64_t kActivations = int64_t{72} << 20;

// What words are made of: random bits that a mask keeps, and bits that are always set. Of every `period` words the
// first `head` hold scales.
struct Words {
  uint32_t mask, bits;
  int64_t period = 1, head = 0;
  uint32_t head_mask = 0, head_bits = 0;
};

__global__ void FillWeights(uint32_t* words, int64_t count, const Words made) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t hash = static_cast<uint32_t>(i) * 2654435761U;
    hash ^= hash >> 15, hash *= 2246822519U, hash ^= hash >> 13;
    const bool scale = i % made.period < made.head;
    words[i] = scale ? (hash & made.head_mask) | made.head_bits : (hash & made.mask) | made.bits;
  }
}

// Reads everything once; the sum is stored only when it is one that nothing gives.
__global__ void PlainRead(const uint4* data, int64_t count, uint32_t* out) {
  uint32_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 v[4];
    for (int j = 0; j < 4; ++j) v[j] = __ldcs(data + i + j * stride);
    for (const uint4& word : v) sum ^= word.x ^ word.y ^ word.z ^ word.w;
  }
  for (; i < count; i += stride) {
    const uint4 word = __ldcs(data + i);
    sum ^= word.x ^ word.y ^ word.z ^ word.w;
  }
  if (sum == 0x12345677U) *out = sum;
}

struct Shape {
  int64_t n, k, leaf;
  bool sums;  // adds to 64-bit sums instead of writing y
};

class Bench {
 public:
  // `only` names the one format to measure, or is null.
  Bench(const KernelRow<Gemm>* row, const char* only)
      : row_(row), only_(only), weights_(Allocate<std::byte>(3 * kRotatedBytes)), x_(Allocate<float>(kActivations)) {
    y_ = Allocate<float>(int64_t{160} << 20);
    fixed_ = Allocate<int64_t>(24 << 20);
    flags_ = Allocate<std::atomic<uint32_t>>(1);
    FillFloats<<<1024, 256, 0, cudaStreamPerThread>>>(x_, kActivations);
  }

  void Format(WeightFormat format, const std::vector<Shape>& shapes, const std::vector<int64_t>& row_counts) {
    if (only_ != nullptr && FormatRow(format).name != only_) return;
    for (const Shape& shape : shapes) {
      PackedMatrix w{format, shape.n, shape.k, shape.leaf, weights_};
      Fill(format, w);
      const int64_t copy = (w.bytes() + 255) / 256 * 256, copies = std::max<int64_t>(1, kRotatedBytes / copy);
      const double read = MedianTime(static_cast<int>(copies), [&](int i) {
        PlainRead<<<132 * 8, 512, 0, cudaStreamPerThread>>>(
            reinterpret_cast<const uint4*>(weights_ + i % copies * copy), w.bytes() / 16,
            reinterpret_cast<uint32_t*>(y_));
      });
      std::printf("%-5s %6ld x %5ld %s  %6.1f MB  read %7.1f us %4.2f TB/s |", FormatRow(format).name.data(), shape.n,
                  shape.k, shape.sums ? "sums" : "y   ", static_cast<double>(w.bytes()) * 1e-6, read,
                  static_cast<double>(w.bytes()) * 1e-6 / read);
      for (const int64_t m : row_counts) {
        const int calls = m <= 16 ? static_cast<int>(copies) : 1;
        const double time = MedianTime(calls, [&](int i) { Product(w, i % copies * copy, m, shape.sums); });
        if (m <= 16) {
          std::printf(" %ld: %.1f (%.2f)", m, time, read / time);
        } else {
          const double operations = 2e-6 * static_cast<double>(shape.n * shape.k * m);
          std::printf(" %ld: %.0f (%.1f TFLOP/s)", m, time, operations / time);
        }
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }

 private:
  void Fill(WeightFormat format, const PackedMatrix& w) {
    Words made{0xBFFFBFFFU, 0};  // BF16 and F16 below 2
    if (format == WeightFormat::kF32) made.mask = 0xBFFFFFFFU;
    if (const auto blocks = BlocksOf(format); blocks.has_value()) {
      const quant::BlockTraits traits = quant::TraitsOf(*blocks);
      const PackedBlock layout = PackedBlockOf(traits);
      made = {~0U, 0, layout.bytes / 4, layout.codes_at / 4};
      made.head_mask = 0x83FF83FFU, made.head_bits = 0x28002800U;  // F16 near 2^-5
      if (traits.scale == quant::ScaleType::kE8M0) made.head_mask = 0x0F0F0F0FU, made.head_bits = 0x70707070U;
      if (traits.scale == quant::ScaleType::kF32) made.head_mask = 0x007FFFFFU, made.head_bits = 0x3C000000U;
      if (traits.code == quant::CodeType::kE4M3) made.mask = 0xBFBFBFBFU;  // no NaN
    }
    const int64_t words = std::min<int64_t>(3 * kRotatedBytes, std::max(kRotatedBytes, w.bytes())) / 4;
    FillWeights<<<4096, 256, 0, cudaStreamPerThread>>>(reinterpret_cast<uint32_t*>(weights_), words, made);
  }
  void Product(PackedMatrix w, int64_t at, int64_t m, bool sums) {
    w.data = weights_ + at;
    Gemm::Args args;
    args.x = x_;
    args.x_stride = w.k;
    args.m = m;
    args.w = &w;
    args.y = sums ? nullptr : y_;
    args.sums_fixed = sums ? fixed_ : nullptr;
    args.y_stride = w.n;
    args.tile_end = w.tiles();
    args.flags = flags_;
    row_->run(args);
  }

  const KernelRow<Gemm>* row_;
  const char* only_;
  std::byte* weights_;
  float *x_, *y_;
  int64_t* fixed_;
  std::atomic<uint32_t>* flags_;
};

void Run(const KernelRow<Gemm>& row, const char* only) {
  std::printf("%s\n", row.name.data());
  Bench bench(&row, only);
  const std::vector<int64_t> decode = {1, 2, 4, 8, 16, 32, 64};
  // The 27B geometry: gate and up, down, output projection, queries to values, a group's keys, a delta net's gates, and
  // the vocabulary.
  std::vector<Shape> shapes = {{34816, 5120, 256, false}, {5120, 17408, 128, true}, {5120, 6144, 256, true},
                               {14336, 5120, 256, false}, {2048, 5120, 256, false}, {96, 5120, 256, false}};
  bench.Format(WeightFormat::kFp8, shapes, decode);
  shapes.push_back({248320, 5120, 256, false});
  bench.Format(WeightFormat::kMxfp4Halves, shapes, decode);
  bench.Format(WeightFormat::kBF16, shapes, decode);
  if (row.contract == Contract::kPortable) {
    for (const WeightFormat format :
         {WeightFormat::kF16, WeightFormat::kQ4_0, WeightFormat::kQ4K, WeightFormat::kQ6K}) {
      bench.Format(format, {{34816, 5120, 256, false}}, {1, 8});
    }
  }
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kFp8, WeightFormat::kMxfp4Halves}) {
    bench.Format(format, {shapes.begin(), shapes.begin() + 5}, {128, 256, 512, 1024, 4096});
  }
}

}  // namespace
}  // namespace trivet::kernels

// cuda_gemm [ROW [FORMAT]]: all rows and formats, or those.
int main(int argc, char** argv) {
  for (const auto& row : trivet::kernels::Gemm::CudaRows()) {
    if (argc < 2 || row.name == argv[1]) trivet::kernels::Run(row, argc < 3 ? nullptr : argv[2]);
  }
  return 0;
}
