// SPDX-License-Identifier: Apache-2.0
// Tiles of queries on a GPU: which queries a block has, what its shared memory holds, and how panels of keys and values
// come there.
#pragma once

#include "kernels/attention_device.cuh"
#include "kernels/cuda_e4m3.cuh"
#include "kernels/cuda_launch.cuh"

namespace trivet::kernels {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileOutputs = kTileThreads * 64;  // of a product: every thread follows 8 x 8 chains
inline constexpr int kPageKeys = kBlockKeys;
inline constexpr int kLeastTileRows = 32, kMostTileRows = 256;
inline constexpr float kUnseen = -1;  // in place of a weight, none of which is negative

/// This thread's number in a block.
__device__ inline int TileThread() { return static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x); }

/// Queries that share a KV head: number n is head `head` + n % group of token `token` + n / group. A tile has those
/// from `first` to `end`, and at a time `count` of one span; rows behind these repeat the last and are not written.
struct TileQueries {
  int64_t kv, token;
  int head, group;
  int64_t first, end;
  TokenSpan span;
  int count;

  /// Fills span and count for the queries from `first` on.
  __device__ void FindSpan(const Attention::Args& args) {
    span = args.spans.data()[SpanIndexOf(args.spans, token + first / group)];
    const int64_t behind = (span.token_begin + span.count - token) * group;
    count = static_cast<int>(std::min(end, behind) - first);
  }
  __device__ int64_t Number(int row) const { return first + min(row, count - 1); }
  __device__ int64_t Token(int row) const { return token + Number(row) / group; }
  __device__ int64_t Head(int row) const { return head + Number(row) % group; }
  __device__ int Position(int row) const { return span.start + static_cast<int>(Token(row) - span.token_begin); }
};

/// Shared memory of a block. Both products of a tile, queries times keys and weights times values, have kRows rows and
/// kColumns columns: all keys of kPages pages, or one page's channels. A warp has 32 x 64 of them: as keys, those of
/// one page.
template <int kRows>
struct alignas(16) TileShared {
  static constexpr int kColumns = kTileOutputs / kRows, kPages = kColumns / kPageKeys;
  static constexpr int kDepth = kColumns >= 256 ? 16 : 4096 / kColumns;  // channels, or keys, that are held at once
  // Four more put the two keys that a quarter of a warp stores at once into different banks.
  static constexpr int kPitch = kRows + 4;

  float weights[kColumns][kPitch];  // by key and row: p, or kUnseen
  float panels[2][kDepth][kColumns];
  float max[kPages][kRows], sum[kPages][kRows];    // of a page's scores, of its p
  float keep[kPages][kRows], take[kPages][kRows];  // as pages are merged; kUnseen for a page that a row does not see
  int position[kRows];
  TileQueries queries;

  /// Queries stand behind it, by channel and row.
  __device__ float* Queries() { return reinterpret_cast<float*>(this + 1); }
  /// With queries of so many channels.
  static size_t Bytes(int64_t key_dim) {
    return sizeof(TileShared) + static_cast<size_t>(key_dim) * kPitch * sizeof(float);
  }
};

/// What a thread brings of a panel: `count` times four neighbours at `column`, from rows of the page that are kStep
/// apart, the first at `row`; `to` is where the first four go.
struct PanelPart {
  bool keys;
  int64_t page, kv;
  int row, column, count;
  float* to;
};

/// How threads share a panel out.
template <int kRows>
struct PanelSteps {
  using Shared = TileShared<kRows>;
  static constexpr int kStep = kTileThreads / (Shared::kColumns / 4), kEach = Shared::kDepth / kStep;
  static constexpr int kApart = kStep * Shared::kColumns;  // floats from four to four in shared memory
};

/// Lets 16 bytes of the device's memory go to shared memory.
__device__ inline void CopyFour(float* to, const float* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
/// Waits for this thread's copies.
__device__ inline void AwaitCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Brings panels of pages that hold floats. Begin lets a thread's loads begin, End waits until they are in shared
/// memory.
template <int kRows>
class FloatPanels {
  using Steps = PanelSteps<kRows>;

 public:
  __device__ void Begin(const KvPages& cache, const PanelPart& part) {
    const int64_t width = part.keys ? kBlockKeys : cache.ValueDim();
    const float* const page = part.keys ? cache.keys + cache.Offset(part.page, part.kv)
                                        : cache.values + cache.ValueOffset(part.page, part.kv);
    const float* const from = page + part.row * width + part.column;
#pragma unroll
    for (int i = 0; i < Steps::kEach; ++i) {
      if (i < part.count) CopyFour(part.to + i * Steps::kApart, from + i * Steps::kStep * width);
    }
  }
  __device__ void End() { AwaitCopies(); }
};

/// The same of pages that hold codes, as what these stand for, which is exact (KvCodeBytes).
template <int kRows>
class CodePanels {
  using Steps = PanelSteps<kRows>;

 public:
  __device__ void Begin(const KvPages& cache, const PanelPart& part) {
    const int64_t width = part.keys ? kBlockKeys : cache.ValueDim();
    const std::byte* const codes =
        part.keys ? cache.KeyCodes(part.page, part.kv) : cache.ValueCodes(part.page, part.kv);
    const std::byte* const scales = codes + kBlockKeys * (part.keys ? cache.head_dim : cache.ValueDim());
    to_ = part.to;
    count_ = part.count;
#pragma unroll
    for (int i = 0; i < Steps::kEach; ++i) {
      if (i < count_) {
        const int row = part.row + i * Steps::kStep;
        words_[i] = *reinterpret_cast<const uint32_t*>(codes + row * width + part.column);
        scales_[i] = part.keys ? *reinterpret_cast<const uint32_t*>(scales + part.column)
                               : std::to_integer<uint32_t>(scales[row]) * 0x01010101U;
      }
    }
  }
  __device__ void End() {
#pragma unroll
    for (int i = 0; i < Steps::kEach; ++i) {
      if (i < count_) {
        const float2 low = PairFromE4M3(words_[i]), high = PairFromE4M3(words_[i] >> 16);
        const auto scale = [&](int at) { return ScaleOfRow(static_cast<std::byte>(scales_[i] >> (8 * at) & 255)); };
        *reinterpret_cast<float4*>(to_ + i * Steps::kApart) =
            make_float4(low.x * scale(0), low.y * scale(1), high.x * scale(2), high.y * scale(3));
      }
    }
  }

 private:
  uint32_t words_[Steps::kEach], scales_[Steps::kEach];  // four codes, and a scale for each of them
  float* to_;
  int count_;
};

}  // namespace trivet::kernels
