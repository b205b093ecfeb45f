// SPDX-License-Identifier: Apache-2.0
// Attention of spans of many tokens, which a GPU takes in tiles of queries.
#include <gtest/gtest.h>

#include "tests/kernels/attention_problem.h"

namespace trivet::kernels {
namespace {

using Sequences = std::vector<std::pair<int32_t, int32_t>>;

const std::vector<int32_t> kRagged = {0, 0, 0, 0, 0, 1, 1, 1, 3};  // of four KV heads, one without queries

// Spans below and above the size from which tiles take them, among tokens that are decoded; `count` more of 33 to 52
// tokens, so that tiles of many rows fill a device.
Sequences Mixed(int32_t count) {
  Sequences sequences = {{0, 3}, {0, 32}, {130, 1}, {62, 40}, {5, 31}, {200, 150}, {700, 1}, {64, 64}};
  for (int32_t i = 0; i < count; ++i) sequences.push_back({i * 7 % 130, 33 + i % 20});
  return sequences;
}

// Items [begin, end) of a step; the others' outputs stay as they are.
void CompareRange(RowLog* log, AttentionProblem* problem, int64_t begin, int64_t end) {
  const std::string what = "items " + std::to_string(begin) + " to " + std::to_string(end);
  log->Compare<Attention>(what, [&](const KernelRow<Attention>& row, Outputs* outputs) {
    Guarded<float> out = problem->Output();
    Attention::Args args = problem->Args();
    args.out = out.data();
    args.begin = begin;
    args.end = end;
    row.run(args);
    outputs->Take(out);
  });
}

}  // namespace

void CompareAttentionTiles(RowLog* log) {
  std::mt19937_64 random(40);
  for (const int64_t dim : {4, 20, 64, 72, 100, 128, 132, 256}) {
    AttentionShape shape{kRagged, 4, dim, Mixed(0)};
    for (const bool aligned : {false, true}) {
      shape.aligned = aligned;
      CompareKinds(log, "spans of all sizes, dim " + std::to_string(dim), shape, &random);
    }
  }
  for (const int64_t window : {1, 3, 63, 64, 65, 100, 300}) {
    CompareKinds(log, "many tokens, window " + std::to_string(window),
                 {kRagged, 4, 32, Mixed(0), window, window % 2 == 1, window > 60 ? 2.0F : 0.0F, 0, true}, &random);
  }
  // Tiles of every number of rows: the wider a head, the fewer. One span of many pages, and tiles over borders of
  // spans.
  for (const auto& [dim, count] : {std::pair{64, 55}, {64, 20}, {128, 27}, {256, 12}}) {
    AttentionShape shape{{0, 0, 0, 0, 0, 0, 1, 1}, 2, dim, Mixed(count)};
    shape.sequences.push_back({900, 70});
    CompareKinds(log, "many rows, dim " + std::to_string(dim) + ", " + std::to_string(count), shape, &random);
    shape.sinks = true;
    shape.softcap = 3;
    shape.window = 130;
    shape.aligned = true;
    CompareKinds(log, "many rows in windows, dim " + std::to_string(dim), shape, &random);
  }
  AttentionProblem problem({kRagged, 4, 48, Mixed(2)}, &random);
  const int64_t items = problem.tokens() * 4;
  for (const auto& [begin, end] : {std::pair{int64_t{0}, items - 1}, {1, items}, {303, 304}, {303, 470}, {501, 1001}}) {
    CompareRange(log, &problem, begin, end);
  }
}

}  // namespace trivet::kernels
