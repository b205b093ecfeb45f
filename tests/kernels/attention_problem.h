// SPDX-License-Identifier: Apache-2.0
// Steps of attention for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {

/// Heads, and the sequences of a step: first position and token count of each.
struct AttentionShape {
  std::vector<int32_t> q_to_kv;
  int64_t kv_heads = 1;
  int64_t dim = 16;
  std::vector<std::pair<int32_t, int32_t>> sequences;  // start, count
  int64_t window = 0;
  bool sinks = false;
  float softcap = 0;
  int codes = 0;  // 0: keys and values are floats; else codes, of rows that are 2^-codes to 2^codes times as large
  bool aligned = false;  // whether queries and outputs stand at multiples of 16 bytes
};

inline constexpr std::byte kNanCode{0x7f};
inline constexpr int kNear = 4, kFar = 60;  // sizes of rows in codes: as models have them, and up to where floats end

/// A step over a paged cache. Pages stand in a random order; every number that no query may see is NaN.
class AttentionProblem {
 public:
  AttentionProblem(AttentionShape shape, std::mt19937_64* random) : shape_(std::move(shape)) {
    int64_t pages = 3;
    for (const auto& [start, count] : shape_.sequences) pages += (start + count + kBlockKeys - 1) / kBlockKeys;
    const std::vector<int32_t> order = Shuffled(pages, random);
    const int64_t elements = pages * shape_.kv_heads * kBlockKeys * shape_.dim;
    keys_.assign(static_cast<size_t>(elements), std::numeric_limits<float>::quiet_NaN());
    values_ = keys_;
    if (shape_.codes > 0) {
      key_codes_.assign(static_cast<size_t>(pages * shape_.kv_heads * KvCodeBytes(shape_.dim)), kNanCode);
      value_codes_ = key_codes_;
    }
    pages_.assign(order.begin(), order.end());
    size_t page = 0;
    for (const auto& [start, count] : shape_.sequences) {
      const int32_t* first = pages_.data() + page;
      spans_.push_back({static_cast<int32_t>(tokens_), count, start, 0, first});
      FillPast(first, start + count, random);
      page += static_cast<size_t>((start + count + kBlockKeys - 1) / kBlockKeys);
      tokens_ += count;
    }
    q_ = RandomValues(tokens_ * q_stride(), random);
    // Beside large rows, queries whose products with small ones underflow, too.
    for (size_t i = 0; i < q_.size() && shape_.codes >= kFar; i += 5) q_[i] *= 0x1p-100F;
    sinks_ = RandomValues(q_heads(), random, 3);
  }

  Attention::Args Args() {
    Attention::Args args;
    args.q = q_.data();
    args.q_stride = q_stride();
    args.q_head_stride = 2 * shape_.dim;  // as where a gate stands behind each query
    args.q_heads = q_heads();
    args.q_to_kv = shape_.q_to_kv.data();
    args.cache = cache();
    args.scale = 1.0F / std::sqrt(static_cast<float>(shape_.dim));
    args.spans = spans_;
    args.end = tokens_ * shape_.kv_heads;
    args.window = shape_.window;
    args.sinks = shape_.sinks ? sinks_.data() : nullptr;
    args.softcap = shape_.softcap;
    return args;
  }
  KvPages cache() {
    if (shape_.codes == 0) return {keys_.data(), values_.data(), shape_.kv_heads, shape_.dim};
    return {nullptr, nullptr, shape_.kv_heads, shape_.dim, shape_.dim, key_codes_.data(), value_codes_.data()};
  }
  Guarded<float> Output() const { return Guarded<float>(tokens_ * q_heads() * shape_.dim, shape_.aligned ? 0 : 1); }
  // Key or value d of a position of sequence `s`.
  float Key(size_t s, int64_t position, int64_t head, int64_t d) {
    return keys_[static_cast<size_t>(At(s, position, head) + d * kBlockKeys + position % kBlockKeys)];
  }
  float Value(size_t s, int64_t position, int64_t head, int64_t d) {
    return values_[static_cast<size_t>(At(s, position, head) + position % kBlockKeys * shape_.dim + d)];
  }

  int64_t tokens() const { return tokens_; }
  int64_t q_heads() const { return static_cast<int64_t>(shape_.q_to_kv.size()); }
  int64_t q_stride() const { return q_heads() * 2 * shape_.dim + (shape_.aligned ? 4 : 3); }
  const AttentionShape& shape() const { return shape_; }
  std::vector<TokenSpan>& spans() { return spans_; }

 private:
  int64_t At(size_t s, int64_t position, int64_t head) {
    return cache().Offset(spans_[s].pages[position / kBlockKeys], head);
  }
  // All keys and values of one sequence, written as KvWrite's reference does.
  void FillPast(const int32_t* pages, int32_t positions, std::mt19937_64* random) {
    const int64_t rows = 2 * shape_.kv_heads, stride = rows * shape_.dim;
    std::vector<float> kv = RandomValues(positions * stride, random, 2);
    for (int64_t row = 0; row < positions * rows && shape_.codes > 0; ++row) {
      const auto size = static_cast<int>((*random)() % static_cast<uint64_t>(2 * shape_.codes + 1)) - shape_.codes;
      for (int64_t d = 0; d < shape_.dim; ++d) {
        float& value = kv[static_cast<size_t>(row * shape_.dim + d)];
        value = row % 17 == 3 ? std::copysign(0.0F, value) : std::scalbn(value, size);
      }
    }
    const TokenSpan span{0, positions, 0, 0, pages};
    KvWriteRef({kv.data(), stride, cache(), std::span(&span, 1), 0, positions});
  }

  AttentionShape shape_;
  int64_t tokens_ = 0;
  std::vector<float> keys_, values_, q_, sinks_;
  std::vector<std::byte> key_codes_, value_codes_;
  std::vector<int32_t> pages_;
  std::vector<TokenSpan> spans_;
};

/// Runs all of it.
inline void RunAll(const KernelRow<Attention>& row, AttentionProblem* problem, Outputs* outputs) {
  Guarded<float> out = problem->Output();
  Attention::Args args = problem->Args();
  args.out = out.data();
  row.run(args);
  outputs->Take(out);
}

/// Compares `what`, in floats and in codes of both sizes.
inline void CompareKinds(RowLog* log, const std::string& what, AttentionShape shape, std::mt19937_64* random) {
  for (const int codes : {0, kNear, kFar}) {
    shape.codes = codes;
    AttentionProblem problem(shape, random);
    log->Compare<Attention>(what + ", codes " + std::to_string(codes),
                            [&](const auto& row, Outputs* outputs) { RunAll(row, &problem, outputs); });
  }
}

/// Steps that have spans of many tokens, for a GPU's tiles.
void CompareAttentionTiles(RowLog* log);

}  // namespace trivet::kernels
