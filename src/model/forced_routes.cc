// SPDX-License-Identifier: Apache-2.0
#include "model/forced_routes.h"

#include <algorithm>

#include "record/records.h"

namespace trivet::model {

std::optional<int32_t> RouteTable::TokenAt(int64_t request, int64_t position) const {
  const auto found = requests.find(request);
  if (found == requests.end() || position >= static_cast<int64_t>(found->second.tokens.size())) return std::nullopt;
  return found->second.tokens[static_cast<size_t>(position)];
}

std::optional<size_t> ForcedRoutes::RowOf(int64_t layer, int64_t token) const {
  if (token == record::kPadding) return std::nullopt;
  const int64_t request = record::RequestOf(token), position = record::PositionOf(token);
  if (!table_.TokenAt(request, position)) return std::nullopt;
  const auto at = std::lower_bound(table_.layers.begin(), table_.layers.end(), layer) - table_.layers.begin();
  const auto row = static_cast<size_t>(position) * table_.layers.size() + static_cast<size_t>(at);
  const int32_t first = table_.requests.at(request).experts[row * static_cast<size_t>(table_.top_k)];
  return first < 0 ? std::nullopt : std::optional(row);
}

std::span<const int32_t> ForcedRoutes::Of(int64_t layer) {
  const auto k = static_cast<size_t>(table_.top_k);
  experts_.assign(tokens_.size() * k, -1);
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::optional<size_t> row = RowOf(layer, tokens_[t]);
    if (!row) continue;
    const std::vector<int32_t>& from = table_.requests.at(record::RequestOf(tokens_[t])).experts;
    std::copy_n(from.begin() + static_cast<int64_t>(*row * k), k, experts_.begin() + static_cast<int64_t>(t * k));
  }
  return experts_;
}

void ForcedRoutes::Count(int64_t layer, std::span<const int32_t> other) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::optional<size_t> row = RowOf(layer, tokens_[t]);
    if (!row) continue;
    const int64_t request = record::RequestOf(tokens_[t]);
    std::vector<bool>& counted = counted_[request];
    counted.resize(table_.requests.at(request).tokens.size() * table_.layers.size());
    // A sequence that lost its pages computes its tokens again.
    if (counted[*row]) continue;
    counted[*row] = true;
    ++counts_.decisions;
    counts_.other += other[t];
  }
}

}  // namespace trivet::model
