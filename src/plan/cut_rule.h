// SPDX-License-Identifier: Apache-2.0
// How the units of one axis are dealt to ranks. Knows no model: counts in, contiguous ranges out.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace trivet::plan {

/// The units of an axis: `stock` exist in the model, dummies at the end fill them up to `padded`.
struct Units {
  int64_t stock = 0;
  int64_t padded = 0;
};

/// One rank's units [begin, begin + count) of the padded axis, of which the first `real` exist in the model.
struct Share {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t real = 0;
};

/// What a share costs, in any unit. Must not fall when the share grows at either end, and be 0 for an empty share.
using SharePrice = std::function<double(const Share&)>;

/// `units` filled up to a multiple of `multiple`; unchanged when `multiple` is 0.
Units PadUnits(int64_t units, int64_t multiple);

/// Counts differ by at most one, by largest remainder: all quotas are equal, so the lower ranks hold one more.
std::vector<Share> DealEven(const Units& units, int64_t ranks);

/// Every rank holds as many units as the largest even share; dummies at the global end.
std::vector<Share> DealPadded(const Units& units, int64_t ranks);

/// Every rank holds every unit.
std::vector<Share> DealAll(const Units& units, int64_t ranks);

/// Contiguous shares whose highest price is the lowest possible; among those the borders nearest to the even ones.
std::vector<Share> DealCheapest(const Units& units, int64_t ranks, const SharePrice& price);

}  // namespace trivet::plan
