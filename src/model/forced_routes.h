// SPDX-License-Identifier: Apache-2.0
// Choices of experts that come from a file instead of the router, and how they are handed to a step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/hash.h"

namespace trivet::model {

/// The choices for one request.
struct RequestRoutes {
  std::vector<int32_t> tokens;   // [T] the token ids that they belong to
  std::vector<int32_t> experts;  // [T, L, K] logical ids; -1 at the first: the router chooses
};

/// The choices of a file.
struct RouteTable {
  std::vector<int64_t> layers;  // [L] those with experts, ascending
  int64_t top_k = 0;
  std::map<int64_t, RequestRoutes> requests;  // by number
  Digest content;

  /// The token id at a position that the table covers; nothing elsewhere.
  std::optional<int32_t> TokenAt(int64_t request, int64_t position) const;
};

/// What was forced so far, every decision once.
struct ForcedCounts {
  int64_t decisions = 0;
  int64_t other = 0;  // that the router would have made otherwise
};

/// The choices for the steps of one rank. One thread uses it.
class ForcedRoutes {
 public:
  /// The table outlives it.
  explicit ForcedRoutes(const RouteTable* table) : table_(*table) {}

  /// Begins a step.
  ///   tokens  [T] global tokens (record/records.h)
  void BeginStep(std::vector<int64_t> tokens) { tokens_ = std::move(tokens); }
  /// [T, K] experts of a layer for the step, as kernels::Route::Args::forced; valid until the next call.
  std::span<const int32_t> Of(int64_t layer);
  /// Counts the layer's decisions.
  ///   other  [T] kernels::Route::Args::other
  void Count(int64_t layer, std::span<const int32_t> other);

  const ForcedCounts& counts() const { return counts_; }

 private:
  /// Index of the layer's choice for a token in RequestRoutes::experts over K; nothing where it is free.
  std::optional<size_t> RowOf(int64_t layer, int64_t token) const;

  const RouteTable& table_;
  std::vector<int64_t> tokens_;
  std::vector<int32_t> experts_;
  std::map<int64_t, std::vector<bool>> counted_;  // by request and row
  ForcedCounts counts_;
};

}  // namespace trivet::model
