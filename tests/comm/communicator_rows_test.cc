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

// Part of rank `rank` in a sum.
template <class T>
std::vector<T> PartOf(int64_t rank, int64_t count) {
  std::vector<T> part;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = (i * 7919 + rank * 104729) % 20011;
    if constexpr (std::is_same_v<T, uint32_t>) {
      part.push_back(i % 3 == rank ? static_cast<uint32_t>(value) : 0);
    } else {
      part.push_back(static_cast<T>(static_cast<double>(value) / 3));
    }
  }
  return part;
}

// Sums rows of which every rank gets its own, and compares with those of AllReduce.
template <class T>
void ReduceAndCompare(const std::vector<RowRun>& runs, int64_t columns) {
  constexpr int64_t kRanks = 3;
  const std::unique_ptr<Group> group = MakeGroup(kRanks);
  RunThreads(kRanks, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    std::vector<T> values = PartOf<T>(rank, AllRows(runs) * columns), all = values, expected;
    ASSERT_TRUE(comm.AllReduce(std::span<T>(all)).ok());
    const CollectiveFacts whole = comm.last();
    for (const RowRun& run : runs) {
      if (run.rank != rank && run.rank != kEveryRank) continue;
      const auto from = all.begin() + run.begin * columns;
      expected.insert(expected.end(), from, from + run.count * columns);
    }
    const Result<std::span<T>> own = comm.ReduceRows(std::span<T>(values), columns, runs);
    ASSERT_TRUE(own.ok());
    EXPECT_TRUE(std::equal(own->begin(), own->end(), expected.begin(), expected.end()));
    EXPECT_EQ(own->data(), values.data());
    EXPECT_TRUE(std::all_of(values.begin() + static_cast<std::ptrdiff_t>(own->size()), values.end(),
                            [](T value) { return value == T{}; }));
    EXPECT_EQ(comm.last().kind, comm.HasAll(runs) ? "all-reduce" : "reduce-scatter");
    EXPECT_EQ(comm.last().order, whole.order);
    EXPECT_EQ(comm.last().ranks, kRanks);
    std::vector<T> complete = all;
    const std::span<T> kept = comm.OwnRows(std::span<T>(complete), columns, runs);
    EXPECT_TRUE(std::equal(kept.begin(), kept.end(), expected.begin(), expected.end()));
    EXPECT_TRUE(std::all_of(complete.begin() + static_cast<std::ptrdiff_t>(kept.size()), complete.end(),
                            [](T value) { return value == T{}; }));
    EXPECT_EQ(comm.last().kind, "none");
  });
}

TEST(CommunicatorRows, SumsOfOwnRowsAreThoseOfAll) {
  // One rank without rows; rows that every rank has; more than a piece of a sum, and rows longer than one.
  const std::vector<RowRun> dealt = {{1, 0, 2}, {0, 2, 3}, {1, 5, 1}};
  for (const std::vector<RowRun>& runs : {dealt, std::vector<RowRun>{{kEveryRank, 0, 6}}, std::vector<RowRun>{}}) {
    for (const int64_t columns : {1, 5, 20000, 70000}) {
      ReduceAndCompare<int64_t>(runs, columns);
      ReduceAndCompare<float>(runs, columns);
      ReduceAndCompare<uint32_t>(runs, columns);
    }
  }
  ReduceAndCompare<float>({{2, 0, 100}, {1, 100, 400}, {0, 500, 7}, {2, 507, 90}}, 256);
}

// As with rows that are shared out, but each rank has them from the beginning.
TEST(CommunicatorRows, RowsOfEveryRankStayWhereTheyAre) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  RunThreads(2, [&](int64_t rank) {
    Communicator comm(group.get(), rank);
    const std::vector<float> own = RowOf(3, 8);
    const std::vector<RowRun> runs = {{kEveryRank, 0, 2}};
    const Result<RowsView> rows = comm.GatherRows({own.data(), 4}, 4, runs, {});
    ASSERT_TRUE(rows.ok());
    EXPECT_EQ(rows->data, own.data());
    EXPECT_EQ(comm.last().kind, "none");
    EXPECT_EQ(comm.last().ranks, 1);
    EXPECT_EQ(RowsOf(runs, rank), 2);
  });
}

// A part that is rounded before it is added is so for all rows, and the record says it.
TEST(CommunicatorRows, AFaultSpoilsAPart) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  const std::vector<RowRun> runs = {{0, 0, 1}, {1, 1, 1}};
  RunThreads(2, [&](int64_t rank) {
    Communicator comm(group.get(), rank, {FaultKind::kPartialBF16, 1, 0, 0});
    comm.BeginStep();
    std::vector<float> values = {1.0001F, 1.0001F};
    const Result<std::span<float>> own = comm.ReduceRows(std::span<float>(values), 1, runs);
    ASSERT_TRUE(own.ok() && own->size() == 1);
    EXPECT_EQ((*own)[0], 1.0001F + 1.0F);
    EXPECT_EQ(comm.last().round_at == "bf16, before the sum", rank == 1);
  });
}

}  // namespace
}  // namespace trivet::comm
