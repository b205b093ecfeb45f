// SPDX-License-Identifier: Apache-2.0
// Attention of prompts: a block has a tile of queries that see the same pages, and walks these once for all of them.
//
// What binds it. A query, a key and a head of D channels for keys and Dv for values take D + Dv multiply-adds, of which
// the chains allow nothing but the float32 units: 132 multiprocessors of an H200 do 128 a cycle each, 67 TFLOP/s. A
// page costs a tile of R rows 64 R (D + Dv) multiply-adds and 256 (D + Dv) bytes from the device's cache, R / 4 for a
// byte: at 128 a cycle a multiprocessor asks for 512 / R bytes, 4 to 8 where R is 128 or 64, of some 24 that the cache
// gives. From shared memory a thread loads two times two float4 for the 64 links of its 8 x 8 chains, one byte for
// each: as much as shared memory gives in that time, 128 bytes a cycle, if lanes that read the same address were
// counted one by one. So multiply-adds bind, and beside them the instructions that are none: 38 in 550 of the loop, and
// for every score some 30 (22 of them its Exp) against D + Dv links. With D = Dv = 128 multiply-adds are 0.83 of all
// instructions, with 256 0.87.
#pragma once

#include "kernels/attention_tile.cuh"

namespace trivet::kernels {

/// Of twice kHalf rows of four numbers each, adds up those of this lane and of the one 4 * kHalf away; of the rows,
/// this lane keeps the half that has its bit.
template <int kHalf>
__device__ inline void FoldRows(float (&rows)[8][4]) {
  const bool high = (threadIdx.x & (4 * kHalf)) != 0;
#pragma unroll
  for (int r = 0; r < kHalf; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float mine = high ? rows[r + kHalf][i] : rows[r][i], other = high ? rows[r][i] : rows[r + kHalf][i];
      rows[r][i] = mine + __shfl_xor_sync(kAllLanes, other, 4 * kHalf);
    }
  }
}

/// One thread's part of a tile: rows Row(0) to Row(7), and as many columns, Column(0) to Column(7).
template <template <int> class Panels, int kRows>
class Tile {
  using Shared = TileShared<kRows>;
  static constexpr int kColumns = Shared::kColumns, kDepth = Shared::kDepth, kPitch = Shared::kPitch;
  static constexpr int kPages = Shared::kPages, kPagePanels = kPageKeys / kDepth;

 public:
  __device__ Tile(const Attention::Args& args, Shared& shared)
      : args_(args),
        queries_(shared.queries),
        shared_(shared),
        key_dim_(static_cast<int>(args.cache.head_dim)),
        dim_(static_cast<int>(args.cache.ValueDim())),
        key_panels_((key_dim_ + kDepth - 1) / kDepth),
        lowest_(queries_.Position(0)),
        highest_(queries_.Position(kRows - 1)),
        first_(Oldest(lowest_) / kPageKeys),
        last_(highest_ / kPageKeys) {}

  __device__ void Run() {
    LoadQueries();
    Place at{first_, 0};
    Panels<kRows> panels;
    Begin(at, 0, &panels);
    panels.End();
    for (int buffer = 0;; buffer ^= 1) {
      __syncthreads();  // the panel is here, and nobody reads the one before
      const Place next = Behind(at);
      const bool more = next.base <= last_;
      if (more) Begin(next, buffer ^ 1, &panels);
      Take(at, &shared_.panels[buffer][0][0]);
      if (!more) break;
      panels.End();
      at = next;
    }
    Write();
  }

 private:
  // A panel: of the pages from `base` on, as many as are held at once, first the keys of all of them, channels
  // [panel * kDepth, ..), then a page's values after the other's.
  struct Place {
    int base, panel;
  };

  // Rows first: where columns are more than a head's channels, each scheduler still has a warp with some.
  static __device__ int WarpRow() { return static_cast<int>(threadIdx.y) % (kRows / 32) * 32; }
  static __device__ int WarpColumn() { return static_cast<int>(threadIdx.y) / (kRows / 32) * kPageKeys; }
  static __device__ int LaneRow() { return static_cast<int>(threadIdx.x) % 4 * 4; }
  static __device__ int LaneColumn() { return static_cast<int>(threadIdx.x) / 4 * 4; }
  static __device__ int Row(int i) { return WarpRow() + LaneRow() + i % 4 + i / 4 * 16; }
  static __device__ int Key(int i) { return LaneColumn() + i % 4 + i / 4 * 32; }  // of the warp's page

  __device__ int Oldest(int position) const { return static_cast<int>(FirstVisible(args_, position)); }
  __device__ int PagesFrom(int base) const { return min(kPages, last_ - base + 1); }
  __device__ Place Behind(const Place& at) const {
    const bool ends = at.panel + 1 == key_panels_ + PagesFrom(at.base) * kPagePanels;
    return ends ? Place{at.base + kPages, 0} : Place{at.base, at.panel + 1};
  }
  // Whether every row sees all keys of a page.
  __device__ bool AllSee(int page) const {
    return page * kPageKeys + kPageKeys - 1 <= lowest_ && page * kPageKeys >= Oldest(highest_);
  }

  // A lane has a row, so that it stores to a bank of its own.
  template <int kWidth>
  __device__ void LoadChannels() {
    float* const to = shared_.Queries();
    const int row = TileThread() % kRows;
    const float* const from = args_.q + queries_.Token(row) * args_.q_stride + queries_.Head(row) * args_.q_head_stride;
#pragma unroll 4
    for (int d = TileThread() / kRows * kWidth; d < key_dim_; d += kTileThreads / kRows * kWidth) {
      if constexpr (kWidth == 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + d);
        to[d * kPitch + row] = four.x;
        to[(d + 1) * kPitch + row] = four.y;
        to[(d + 2) * kPitch + row] = four.z;
        to[(d + 3) * kPitch + row] = four.w;
      } else {
        to[d * kPitch + row] = from[d];
      }
    }
  }
  __device__ void LoadQueries() {
    if (TileThread() < kRows) shared_.position[TileThread()] = queries_.Position(TileThread());
    const bool fours = reinterpret_cast<uintptr_t>(args_.q) % 16 == 0 &&
                       (args_.q_stride | args_.q_head_stride | args_.cache.head_dim) % 4 == 0;
    fours ? LoadChannels<4>() : LoadChannels<1>();
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int c = 0; c < 8; ++c) out_[r][c] = sums_[r][c] = 0;
    }
  }

  // Lets the loads of a panel begin. A page behind the last and channels behind a head's end are not loaded: what
  // stands in their place is used by nothing that counts.
  __device__ void Begin(const Place& at, int buffer, Panels<kRows>* panels) {
    constexpr int kStep = PanelSteps<kRows>::kStep, kFours = kColumns / 4;
    const int column = TileThread() % kFours * 4, row = TileThread() / kFours;
    const bool keys = at.panel < key_panels_;
    const int panel = keys ? at.panel : at.panel - key_panels_;
    const int page = at.base + (keys ? column / kPageKeys : panel / kPagePanels);
    PanelPart part{keys, 0, queries_.kv, 0, column, 0, &shared_.panels[buffer][row][column]};
    if (keys) {
      part.row = panel * kDepth + row;
      part.column = column % kPageKeys;
      if (page <= last_) part.count = (key_dim_ - part.row + kStep - 1) / kStep;
    } else {
      part.row = panel % kPagePanels * kDepth + row;
      if (column < dim_) part.count = kDepth / kStep;
    }
    if (part.count > 0) part.page = queries_.span.pages[page];
    panels->Begin(args_.cache, part);
  }

  // Uses a panel.
  __device__ void Take(const Place& at, const float* panel) {
    const bool keys = at.panel < key_panels_;
    const int d = at.panel * kDepth;                                        // of keys, the panel's first channel
    const int j = (at.panel - key_panels_) * kDepth, page = j / kPageKeys;  // of values, its first key
    const bool mine = keys ? at.base + WarpColumn() / kPageKeys <= last_ : WarpColumn() < dim_;
    const float* const of_rows = keys ? shared_.Queries() + d * kPitch : shared_.weights[j];
    const int count = min(kDepth, keys ? key_dim_ - d : highest_ + 1 - at.base * kPageKeys - j);
    if (mine) {
      keys || AllSee(at.base + page) ? Multiply<false>(of_rows, panel, count) : Multiply<true>(of_rows, panel, count);
    }
    if (at.panel + 1 == key_panels_) {
      Weigh(at.base);
    } else if (!keys && mine && j % kPageKeys + kDepth == kPageKeys) {
      Merge(page);
    }
  }

  // One more link of every chain: sums = fma(of the row, of the column, sums), where the row's is not kUnseen.
  template <bool kSkips>
  __device__ void Link(const float* of_rows, const float* of_columns) {
    float a[8], b[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float4*>(a + 4 * half) = *reinterpret_cast<const float4*>(of_rows + 16 * half);
      *reinterpret_cast<float4*>(b + 4 * half) = *reinterpret_cast<const float4*>(of_columns + 32 * half);
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const bool seen = !kSkips || !(a[r] < 0);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const float sum = std::fma(a[r], b[c], sums_[r][c]);
        sums_[r][c] = seen ? sum : sums_[r][c];
      }
    }
  }
  // `count` links.
  template <bool kSkips>
  __device__ void Multiply(const float* of_rows, const float* of_columns, int count) {
    constexpr int kUnroll = kSkips ? 1 : 8;
    of_rows += WarpRow() + LaneRow();
    of_columns += WarpColumn() + LaneColumn();
    int k = 0;
#pragma unroll 1
    for (; k + kUnroll <= count; k += kUnroll) {
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) Link<kSkips>(of_rows + i * kPitch, of_columns + i * kColumns);
      of_rows += kUnroll * kPitch;
      of_columns += kUnroll * kColumns;
    }
#pragma unroll 1
    for (; k < count; ++k, of_rows += kPitch, of_columns += kColumns) Link<kSkips>(of_rows, of_columns);
  }

  // The place of this thread's weights of a key of its page, four rows at a time.
  __device__ float4& Weights(int i, int half) {
    return *reinterpret_cast<float4*>(&shared_.weights[WarpColumn() + Key(i)][WarpRow() + LaneRow() + 16 * half]);
  }
  __device__ void StoreSums() {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int c = i / 2, r = i % 2 * 4;
      Weights(c, i % 2) = make_float4(sums_[r][c], sums_[r + 1][c], sums_[r + 2][c], sums_[r + 3][c]);
    }
  }
  // What is long code is there once, and sums go through shared memory.
  template <class Function>
  __device__ void MapSums(const Function& function) {
    StoreSums();
#pragma unroll 1
    for (int i = 0; i < 16; ++i) {
      const float4 four = Weights(i / 2, i % 2);
      Weights(i / 2, i % 2) = make_float4(function(four.x), function(four.y), function(four.z), function(four.w));
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int c = i / 2, r = i % 2 * 4;
      const float4 four = Weights(c, i % 2);
      sums_[r][c] = four.x, sums_[r + 1][c] = four.y, sums_[r + 2][c] = four.z, sums_[r + 3][c] = four.w;
    }
  }

  // Puts `value` in place of the sums of keys that a row does not see.
  __device__ void Mask(int page, float value) {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const int position = shared_.position[Row(r)];
      const int from = Oldest(position) - page * kPageKeys, visible = position + 1 - page * kPageKeys;
#pragma unroll
      for (int c = 0; c < 8; ++c) sums_[r][c] = Key(c) >= from && Key(c) < visible ? sums_[r][c] : value;
    }
  }
  // The largest score of each row; none of a NaN.
  __device__ void FindMax(float (&max)[8]) const {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      max[r] = -INFINITY;
#pragma unroll
      for (int c = 0; c < 8; ++c) max[r] = fmaxf(max[r], sums_[r][c]);
    }
#pragma unroll
    for (int lanes = kWarp / 2; lanes >= 4; lanes /= 2) {
#pragma unroll
      for (int r = 0; r < 8; ++r) max[r] = fmaxf(max[r], __shfl_xor_sync(kAllLanes, max[r], lanes));
    }
  }
  // The halving sum of a page's p, for the row Row(LaneColumn() / 4).
  __device__ float SumOfPage() const {
    float rows[8][4];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[r][i] = sums_[r][i] + sums_[r][i + 4];  // keys 32 apart
    }
    FoldRows<4>(rows);  // 16 apart, then 8 and 4
    FoldRows<2>(rows);
    FoldRows<1>(rows);
    return (rows[0][0] + rows[0][2]) + (rows[0][1] + rows[0][3]);
  }

  // The sums of a page of keys become weights, which go to shared memory with their largest score and their sum.
  __device__ void WeighPage(int page) {
    if (args_.softcap > 0) {
      MapSums([this](float sum) { return Score(args_, sum); });
    } else {
      ForSums([this](float sum) { return sum * args_.scale; });
    }
    const bool all_see = AllSee(page);
    if (!all_see) Mask(page, -INFINITY);
    float max[8];
    FindMax(max);
    // How far scores are below it, as bits: in the order of numbers that are not negative, with a NaN above all.
    uint32_t farthest[8] = {};
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        sums_[r][c] = max[r] - sums_[r][c];
        farthest[r] = ::max(farthest[r], __float_as_uint(sums_[r][c]));
      }
    }
    bool in_range = all_see;
#pragma unroll
    for (int r = 0; r < 8; ++r) in_range = in_range && farthest[r] <= __float_as_uint(-kLeastExp);
    if (__all_sync(kAllLanes, in_range)) {
      ForSums([](float below) { return ExpInRange(-below); });
    } else {
      MapSums([](float below) { return Exp<ScalarOps>(-below); });
    }
    if (!all_see) Mask(page, 0);
    const float sum = SumOfPage();
    if (!all_see) Mask(page, kUnseen);
    StoreSums();
    const int of_warp = WarpColumn() / kPageKeys, mine = LaneColumn() / 4;
    shared_.sum[of_warp][Row(mine)] = sum;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      if (mine == r) shared_.max[of_warp][Row(r)] = max[r];
    }
  }

  // Ends the scores of the pages from `base` on.
  __device__ void Weigh(int base) {
    const int page = base + WarpColumn() / kPageKeys;
    if (page <= last_) WeighPage(page);
    Clear();
    __syncthreads();
    if (TileThread() < kRows) WeighPages(base);
  }
  // How the pages from `base` on are merged into the thread's row.
  __device__ void WeighPages(int base) {
    const int row = TileThread(), position = shared_.position[row], first = Oldest(position) / kPageKeys;
#pragma unroll
    for (int i = 0; i < kPages; ++i) {
      const int page = base + i;
      float keep = kUnseen, take = 0;
      if (page >= first && page <= position / kPageKeys) {
        const float of_page = shared_.max[i][row];
        const float merged = page == first ? of_page : ScalarOps::Max(max_, of_page);
        keep = page == first ? 0.0F : Exp<ScalarOps>(max_ - merged);
        take = Exp<ScalarOps>(of_page - merged);
        sum_ = sum_ * keep + shared_.sum[i][row] * take;
        max_ = merged;
      }
      shared_.keep[i][row] = keep;
      shared_.take[i][row] = take;
    }
  }
  // Merges what the chains over a page's values gave.
  __device__ void Merge(int page) {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float keep = shared_.keep[page][Row(r)], take = shared_.take[page][Row(r)];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const float merged = out_[r][c] * keep + sums_[r][c] * take;
        out_[r][c] = keep < 0 ? out_[r][c] : merged;
      }
    }
    Clear();
  }
  template <class Function>
  __device__ void ForSums(const Function& function) {
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int c = 0; c < 8; ++c) sums_[r][c] = function(sums_[r][c]);
    }
  }
  __device__ void Clear() {
    ForSums([](float) { return 0.0F; });
  }

  // Divides the values by the sum of the weights, and writes them.
  __device__ void Write() {
    __syncthreads();  // everybody has merged
    if (const int row = TileThread(); row < kRows) {
      shared_.keep[0][row] = MergeSink(args_, queries_.Head(row), max_, &sum_);
      shared_.sum[0][row] = sum_;
    }
    __syncthreads();
    const bool aligned = reinterpret_cast<uintptr_t>(args_.out) % 16 == 0;
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const int row = Row(r);
      if (row >= queries_.count) continue;
      const float keep = shared_.keep[0][row], sum = shared_.sum[0][row];
      float* const to = args_.out + (queries_.Token(row) * args_.q_heads + queries_.Head(row)) * dim_;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float four[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float value = out_[r][4 * half + i];
          four[i] = (args_.sinks != nullptr ? value * keep : value) / sum;
        }
        const int d = WarpColumn() + Key(4 * half);
        if (d >= dim_) continue;
        if (aligned) {
          *reinterpret_cast<float4*>(to + d) = make_float4(four[0], four[1], four[2], four[3]);
        } else {
          for (int i = 0; i < 4; ++i) to[d + i] = four[i];
        }
      }
    }
  }

  const Attention::Args& args_;
  const TileQueries& queries_;
  Shared& shared_;
  const int key_dim_, dim_, key_panels_;
  const int lowest_, highest_;  // positions of the first row and the last
  const int first_, last_;      // pages that a row sees
  float sums_[8][8], out_[8][8];
  float max_ = 0, sum_ = 0;  // of the thread's row, by the first kRows threads
};

}  // namespace trivet::kernels
