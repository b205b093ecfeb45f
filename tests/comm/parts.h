// SPDX-License-Identifier: Apache-2.0
// Known parts of sums over ranks, and what they sum up to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace trivet::comm {

/// The values rank `rank` gives in call `call`.
template <class T>
std::vector<T> Part(int64_t rank, int64_t call, int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(rank * 1000003 + call));
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    if constexpr (std::is_same_v<T, float>) {
      // Magnitudes far apart, so that the order of additions shows.
      const auto scale = std::bit_cast<float>(static_cast<uint32_t>(100 + random() % 20) << 23);
      value = scale * (static_cast<float>(random() % 2000001) - 1000000.0F);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      value = static_cast<int64_t>(random()) >> 5;  // sixteen of them fit
    } else {
      value = 0;
    }
  }
  return values;
}

/// Bit patterns: each element belongs to one rank.
template <>
inline std::vector<uint32_t> Part(int64_t rank, int64_t call, int64_t count) {
  std::vector<uint32_t> values(static_cast<size_t>(count), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int64_t>((i + static_cast<size_t>(call)) % 7) == rank)
      values[i] = 0x80000000U | static_cast<uint32_t>(i);
  }
  return values;
}

/// The sum in ascending rank order.
template <class T>
std::vector<T> Sum(int64_t ranks, int64_t call, int64_t count) {
  std::vector<T> sum = Part<T>(0, call, count);
  for (int64_t rank = 1; rank < ranks; ++rank) {
    const std::vector<T> part = Part<T>(rank, call, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

template <class T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

/// One all-reduce of this rank's part, compared with the sum.
template <class T>
void ReduceAndCompare(Communicator* comm, int64_t call, const std::vector<T>& expected) {
  const auto count = static_cast<int64_t>(expected.size());
  std::vector<T> values = Part<T>(comm->rank(), call, count);
  const Status status = comm->AllReduce(std::span<T>(values));
  ASSERT_TRUE(status.ok()) << status.error().message;
  ASSERT_TRUE(SameBytes(values, expected))
      << comm->size() << " ranks, rank " << comm->rank() << ", call " << call << ", " << count << " values";
}

template <class T>
void ReduceAndCompare(Communicator* comm, int64_t call, int64_t count) {
  ReduceAndCompare(comm, call, Sum<T>(comm->size(), call, count));
}

}  // namespace trivet::comm
