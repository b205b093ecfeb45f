// SPDX-License-Identifier: Apache-2.0
// How rows of ranks come together and go back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

// Row `row` of a matrix that all ranks could make.
std::vector<float> RowOf(int64_t row, int64_t columns) {
  std::vector<float> values;
  for (int64_t c = 0; c < columns; ++c) values.push_back(static_cast<float>(row * 1000 + c));
  return values;
}

// Gathers rows that are dealt out by `runs`, and returns them in parts, on every rank.
void GatherAndReturn(int64_t ranks, const std::vector<RowRun>& runs, int64_t units, int64_t width) {
  const std::unique_ptr<Group> group = MakeGroup(ranks);
  const int64_t columns = units * width, rows = runs.empty() ? 0 : runs.back().begin + runs.back().count;
  RunThreads(ranks, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    const int64_t stride = columns + 3;
    std::vector<float> own, dense, expected;
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> values = RowOf(row, columns);
      expected.insert(expected.end(), values.begin(), values.end());
    }
    for (const RowRun& run : runs) {
      for (int64_t row = run.begin; run.rank == rank && row < run.begin + run.count; ++row) {
        const std::vector<float> values = RowOf(row, columns);
        dense.insert(dense.end(), values.begin(), values.end());
        own.insert(own.end(), values.begin(), values.end());
        own.resize(own.size() + 3, -1.0F);
      }
    }
    std::vector<float> all(expected.size());
    const Result<RowsView> gathered = comm.GatherRows({own.data(), stride}, columns, runs, all);
    ASSERT_TRUE(gathered.ok());
    for (int64_t row = 0; row < rows; ++row) {
      const float* at = gathered->data + row * gathered->stride;
      ASSERT_TRUE(std::equal(at, at + columns, expected.begin() + row * columns)) << "row " << row;
    }
    // Every rank has its share of the units alone.
    std::vector<float> part(expected.size(), -1.0F), back(dense.size());
    const Share share = ShareOf(units, ranks, rank);
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = row * columns + share.begin * width, end = row * columns + share.end * width;
      std::copy(expected.begin() + begin, expected.begin() + end, part.begin() + begin);
    }
    const Result<std::span<float>> returned = comm.ReturnRows(part, units, width, runs, back);
    ASSERT_TRUE(returned.ok());
    EXPECT_TRUE(std::equal(returned->begin(), returned->end(), dense.begin(), dense.end()));
  });
}

TEST(CommunicatorRows, RowsComeTogetherAndGoBack) {
  GatherAndReturn(1, {{0, 0, 5}}, 3, 4);
  GatherAndReturn(2, {}, 3, 4);
  GatherAndReturn(3, {{1, 0, 2}, {0, 2, 1}, {1, 3, 4}}, 2, 5);  // one has no rows, and one no unit
  GatherAndReturn(3, {{2, 0, 1}, {0, 1, 7}, {1, 8, 3}, {2, 11, 6}, {0, 17, 1}}, 7, 3);
  // More rows than pass through a slot at a time.
  const int64_t wide = 50000, many = 2 * kSlotBytes / 4 / wide;
  GatherAndReturn(2, {{0, 0, many + 3}, {1, many + 3, 5}, {0, many + 8, 2}}, 5, wide / 5);
}

TEST(CommunicatorRows, ShownRowsCanBeRounded) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  RunThreads(2, [&](int64_t rank) {
    Communicator comm(group.get(), rank, {FaultKind::kHandBF16, 0, 0, 0});
    const std::vector<float> own = {1.0001F};
    std::vector<float> all(2);
    const std::vector<RowRun> runs = {{0, 0, 1}, {1, 1, 1}};
    ASSERT_TRUE(comm.GatherRows({own.data(), 1}, 1, runs, all).ok());
    EXPECT_EQ(all, (std::vector<float>{rank == 0 ? 1.0001F : 1.0F, 1.0001F})) << "its own values stay";
  });
}

}  // namespace
}  // namespace trivet::comm
