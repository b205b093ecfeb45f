// SPDX-License-Identifier: Apache-2.0
#include "plan/cut_rule.h"

#include <algorithm>

#include "base/check.h"

namespace trivet::plan {
namespace {

Share MakeShare(const Units& units, int64_t begin, int64_t end) {
  return {begin, end - begin, std::clamp(units.stock - begin, int64_t{0}, end - begin)};
}

// The first unit of rank `rank` when all counts differ by at most one; `rank` == `ranks` gives the end.
int64_t EvenBegin(int64_t units, int64_t ranks, int64_t rank) {
  return rank * (units / ranks) + std::min(rank, units % ranks);
}

// The smallest value in [low, high] that `holds`, which is false below some value and true from there on, and is true
// at `high`.
int64_t FirstThat(int64_t low, int64_t high, const std::function<bool(int64_t)>& holds) {
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (holds(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// latest[r] is the first unit from which ranks r, r + 1, ... can hold all that follow without any exceeding `bound`.
std::vector<int64_t> FirstCoverable(const Units& units, int64_t ranks, const SharePrice& price, double bound) {
  std::vector<int64_t> first(static_cast<size_t>(ranks) + 1, units.padded);
  for (size_t r = static_cast<size_t>(ranks); r-- > 0;) {
    const int64_t end = first[r + 1];
    first[r] = FirstThat(0, end, [&](int64_t begin) { return price(MakeShare(units, begin, end)) <= bound; });
  }
  return first;
}

double HighestPrice(const std::vector<Share>& shares, const SharePrice& price) {
  double highest = 0;
  for (const Share& share : shares) highest = std::max(highest, price(share));
  return highest;
}

}  // namespace

Units PadUnits(int64_t units, int64_t multiple) {
  if (multiple == 0) return {units, units};
  return {units, (units + multiple - 1) / multiple * multiple};
}

std::vector<Share> DealEven(const Units& units, int64_t ranks) {
  CHECK(ranks > 0);
  std::vector<Share> shares;
  for (int64_t r = 0; r < ranks; ++r) {
    shares.push_back(MakeShare(units, EvenBegin(units.padded, ranks, r), EvenBegin(units.padded, ranks, r + 1)));
  }
  return shares;
}

std::vector<Share> DealPadded(const Units& units, int64_t ranks) {
  return DealEven({units.stock, PadUnits(units.padded, ranks).padded}, ranks);
}

std::vector<Share> DealAll(const Units& units, int64_t ranks) {
  return std::vector<Share>(static_cast<size_t>(ranks), MakeShare(units, 0, units.padded));
}

std::vector<Share> DealCheapest(const Units& units, int64_t ranks, const SharePrice& price) {
  std::vector<Share> shares = DealEven(units, ranks);
  // Bisection keeps `high` a bound that some deal meets; 64 halvings leave nothing between two distinct prices.
  double low = 0;
  double high = HighestPrice(shares, price);
  const double even_price = high;
  for (int i = 0; i < 64; ++i) {
    const double middle = low + (high - low) / 2;
    if (FirstCoverable(units, ranks, price, middle)[0] == 0) {
      high = middle;
    } else {
      low = middle;
    }
  }
  if (high >= even_price) return shares;
  const std::vector<int64_t> first = FirstCoverable(units, ranks, price, high);
  int64_t begin = 0;
  for (size_t r = 0; r < shares.size(); ++r) {
    const auto fits = [&](int64_t end) { return price(MakeShare(units, begin, end)) <= high; };
    const int64_t reach =
        FirstThat(begin, units.padded, [&](int64_t end) { return end == units.padded || !fits(end + 1); });
    const int64_t even_end = EvenBegin(units.padded, ranks, static_cast<int64_t>(r) + 1);
    const int64_t end = std::clamp(even_end, std::max(begin, first[r + 1]), std::max(begin, reach));
    shares[r] = MakeShare(units, begin, end);
    begin = end;
  }
  CHECK(begin == units.padded);
  return shares;
}

}  // namespace trivet::plan
