// SPDX-License-Identifier: Apache-2.0
#include "plan/stages.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace trivet::plan {

std::vector<Stage> DealStages(int64_t layers, int64_t stages, const StagePrice& price) {
  CHECK(stages >= 1 && stages <= layers);
  // best[s][end]: the dearest of the first s stages when they have `end` layers; from[s][end]: where the last begins.
  const auto width = static_cast<size_t>(layers) + 1, count = static_cast<size_t>(stages);
  std::vector<std::vector<double>> prices(width, std::vector<double>(width));
  for (int64_t begin = 0; begin < layers; ++begin) {
    for (int64_t end = begin + 1; end <= layers; ++end) {
      prices[static_cast<size_t>(begin)][static_cast<size_t>(end)] = price({begin, end, end == layers});
    }
  }
  std::vector<std::vector<double>> best(count + 1, std::vector(width, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<size_t>> from(count + 1, std::vector<size_t>(width));
  best[0][0] = 0;
  for (size_t s = 1; s <= count; ++s) {
    for (size_t end = s; end < width; ++end) {
      for (size_t begin = s - 1; begin < end; ++begin) {
        const double dearest = std::max(best[s - 1][begin], prices[begin][end]);
        if (dearest > best[s][end]) continue;
        best[s][end] = dearest;
        from[s][end] = begin;
      }
    }
  }
  std::vector<Stage> dealt(count);
  size_t end = width - 1;
  for (size_t s = count; s > 0; --s) {
    dealt[s - 1] = {static_cast<int64_t>(from[s][end]), static_cast<int64_t>(end), s == count};
    end = from[s][end];
  }
  return dealt;
}

std::vector<Stage> StagesOf(const std::vector<int64_t>& counts) {
  std::vector<Stage> stages;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    stages.push_back({begin, begin + count, stages.size() + 1 == counts.size()});
    begin += count;
  }
  return stages;
}

}  // namespace trivet::plan
