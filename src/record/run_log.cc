// SPDX-License-Identifier: Apache-2.0
#include "record/run_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace trivet::record {
namespace {

// Bytes of plain records, one behind the other, in memory that the caller has.
class Bytes {
 public:
  explicit Bytes(std::span<std::byte> memory) : memory_(memory) {}
  template <class T>
  void Put(const T& value) {
    Put(std::as_bytes(std::span(&value, 1)));
  }
  void Put(std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += bytes.size();
  }
  Digest Hash() const { return Hash128(std::span<const std::byte>(memory_.first(size_))); }

 private:
  const std::span<std::byte> memory_;
  size_t size_ = 0;
};

bool AllFinite(const RouteSlot& slot) {
  return std::isfinite(slot.weight) && std::isfinite(slot.score) && std::isfinite(slot.selection);
}

template <class T>
bool SameBytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// The records in order of `bucket`, a small number, and as they were where it is the same.
template <class T, class Bucket>
std::vector<T> ByBucket(const std::vector<T>& records, const Bucket& bucket, std::vector<size_t>* begins) {
  for (const T& record : records) {
    if (begins->size() < bucket(record) + 2) begins->resize(bucket(record) + 2);
    ++(*begins)[bucket(record) + 1];
  }
  std::partial_sum(begins->begin(), begins->end(), begins->begin());
  std::vector<size_t> next = *begins;
  std::vector<T> sorted(records.size());
  for (const T& record : records) sorted[next[bucket(record)]++] = record;
  return sorted;
}

// Sorts by bucket and in a bucket by `key`, in which order they mostly come, and keeps one of equal records. Records of
// one key that differ stay, for the verifier to find.
template <class T, class Bucket, class Key>
void SortUnique(std::vector<T>* records, const Bucket& bucket, const Key& key) {
  const auto before = [&](const T& a, const T& b) {
    const auto ka = key(a), kb = key(b);
    return ka != kb ? ka < kb : std::memcmp(&a, &b, sizeof(T)) < 0;
  };
  const auto not_after = [&](const T& a, const T& b) { return !before(a, b); };
  std::vector<size_t> begins;
  std::vector<T> sorted = ByBucket(*records, bucket, &begins);
  bool unique = true;
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(begins[i]);
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(begins[i + 1]);
    if (std::adjacent_find(begin, end, not_after) == end) continue;  // ascends
    std::sort(begin, end, before);
    unique = false;
  }
  if (!unique) sorted.erase(std::unique(sorted.begin(), sorted.end(), SameBytes<T>), sorted.end());
  *records = std::move(sorted);
}

std::vector<int32_t> UpTo(size_t count) {
  std::vector<int32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Of records that name a step, so that a token computed twice has two. One that is there twice is a defect and stays.
template <class T>
void SortByStep(std::vector<T>* records) {
  std::sort(records->begin(), records->end(), [](const T& a, const T& b) {
    return std::tie(a.layer, a.token, a.slot, a.step) < std::tie(b.layer, b.token, b.slot, b.step);
  });
}

}  // namespace

Digest DecisionDigest(const Digest& domain, const RouteHead& head, std::span<const RouteSlot> slots) {
  // A layer has one of these per token, so the usual ones need no memory of the heap.
  std::array<std::byte, 512> few;
  const size_t most = sizeof(domain) + sizeof(head) + slots.size_bytes();
  std::vector<std::byte> many(most > few.size() ? most : 0);
  Bytes bytes(many.empty() ? std::span<std::byte>(few) : std::span<std::byte>(many));
  bytes.Put(domain);
  bytes.Put(head.token);
  bytes.Put(head.input);
  bytes.Put(head.layer);
  bytes.Put(head.top_k);
  bytes.Put(std::as_bytes(slots));
  return bytes.Hash();
}

void RunLog::BeginStep(std::vector<RowRecord> rows, std::vector<int64_t> logits_rows,
                       const std::optional<KeptRows>& kept) {
  step_rows_ = std::move(rows);
  step_logits_ = std::move(logits_rows);
  kept_ = kept ? *kept : KeptRows{UpTo(step_rows_.size()), UpTo(step_logits_.size())};
  for (const int32_t row : kept_.rows) rows_.push_back(step_rows_[static_cast<size_t>(row)]);
}

void RunLog::Bound(int64_t token, Site site, int64_t layer, std::span<const float> values) {
  bounds_.push_back({token, static_cast<int16_t>(layer), site, 0, static_cast<uint32_t>(values.size()),
                     Hash128(std::as_bytes(values))});
}

void RunLog::Rows(Site site, int64_t layer, std::span<const float> values) {
  if (kept_.rows.empty()) {
    CHECK(values.empty());
    return;
  }
  CHECK(values.size() % kept_.rows.size() == 0);
  const size_t n = values.size() / kept_.rows.size();
  for (size_t i = 0; i < kept_.rows.size(); ++i) {
    const int64_t token = step_rows_[static_cast<size_t>(kept_.rows[i])].token;
    if (token != kPadding) Bound(token, site, layer, values.subspan(i * n, n));
  }
}

void RunLog::LogitsRows(Site site, int64_t layer, std::span<const float> values) {
  // Logits are on one rank, whoever has kept the rows.
  const std::vector<int32_t> rows = site == Site::kLogits ? UpTo(step_logits_.size()) : kept_.logits;
  if (rows.empty()) return;
  CHECK(values.size() % rows.size() == 0);
  const size_t n = values.size() / rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t token = step_logits_[static_cast<size_t>(rows[i])];
    if (token != kPadding) Bound(token, site, layer, values.subspan(i * n, n));
  }
}

void RunLog::KeepLogits(std::span<const int64_t> tokens, std::span<const float> values) {
  if (options_.level < Level::kRows || tokens.empty()) return;
  CHECK(values.size() % tokens.size() == 0);
  const size_t n = values.size() / tokens.size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::span<const float> row = values.subspan(i * n, n);
    if (tokens[i] != kPadding) logits_[tokens[i]].assign(row.begin(), row.end());
  }
}

void RunLog::Place(std::vector<Address> addresses, uint32_t version) {
  addresses_ = std::move(addresses);
  version_ = version;
}

void RunLog::Route(int64_t layer, const Choice& choice) {
  chosen_among_ = chosen_among_ == 0 ? choice.among : std::min(chosen_among_, choice.among);
  const auto k = static_cast<size_t>(options_.top_k);
  std::vector<RouteSlot> slots(k);
  for (const int32_t kept : kept_.rows) {
    const auto t = static_cast<size_t>(kept);
    const RowRecord& row = step_rows_[t];
    if (row.token == kPadding) continue;
    const float next = choice.choice[t * (k + 1) + k];
    RouteHead head{row.token, row.input, static_cast<int16_t>(layer), static_cast<uint16_t>(k), next, 0};
    if (choice.forced != nullptr && choice.forced[t * k] >= 0) {
      head.flags = kForced | (choice.other[t] != 0 ? kForcedOther : 0);
    }
    bool finite = true;
    for (size_t i = 0; i < k; ++i) {
      slots[i] = {static_cast<uint16_t>(choice.experts[t * k + i]), 0, choice.weights[t * k + i],
                  choice.scores[t * k + i], choice.choice[t * (k + 1) + i]};
      finite = finite && AllFinite(slots[i]);
    }
    decisions_.push_back({row.token, row.input, head.layer, static_cast<uint8_t>(finite), static_cast<uint8_t>(k),
                          DecisionDigest(options_.domain, head, slots)});
    if (options_.level >= Level::kRows) {
      routes_.push_back(head);
      route_slots_.insert(route_slots_.end(), slots.begin(), slots.end());
    }
    if (options_.level < Level::kFull) continue;
    for (size_t i = 0; i < k; ++i) {
      const Address& to = addresses_[slots[i].expert];
      dispatches_.push_back({row.token, row.step, version_, head.layer, slots[i].expert, to.ep_rank, to.local_slot,
                             static_cast<uint16_t>(i), 0, 0});
    }
  }
}

void RunLog::Execute(int64_t layer, std::span<const int32_t> pairs, std::span<const int32_t> local_slots) {
  if (options_.level < Level::kFull) return;
  const auto k = static_cast<int32_t>(options_.top_k);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const RowRecord& row = step_rows_[static_cast<size_t>(pairs[i] / k)];
    if (row.token == kPadding) continue;
    executions_.push_back({row.token, row.step, static_cast<int16_t>(layer), static_cast<uint16_t>(local_slots[i]),
                           static_cast<uint16_t>(pairs[i] % k), 0, 0});
  }
}

// Heads and slots lie in two arrays: both follow one order.
void RunLog::SortRoutes() {
  const auto k = static_cast<size_t>(options_.top_k);
  std::vector<size_t> order(routes_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(routes_[a].layer, routes_[a].token) < std::tie(routes_[b].layer, routes_[b].token);
  });
  std::vector<RouteHead> heads;
  std::vector<RouteSlot> slots;
  for (const size_t i : order) {
    const auto from = route_slots_.begin() + static_cast<std::ptrdiff_t>(i * k);
    const bool again = !heads.empty() && SameBytes(heads.back(), routes_[i]) &&
                       std::memcmp(slots.data() + slots.size() - k, &*from, k * sizeof(RouteSlot)) == 0;
    if (again) continue;
    heads.push_back(routes_[i]);
    slots.insert(slots.end(), from, from + static_cast<std::ptrdiff_t>(k));
  }
  routes_ = std::move(heads);
  route_slots_ = std::move(slots);
}

void RunLog::Sort() {
  constexpr size_t kSites = size_t{1} << (8 * sizeof(Site));
  const auto layer_of = [](int16_t layer) { return static_cast<size_t>(layer - kBeforeLayers); };
  SortUnique(
      &rows_, [](const RowRecord&) { return size_t{0}; },
      [](const RowRecord& r) { return std::tuple(r.token, r.step, r.row); });
  SortUnique(
      &decisions_, [&](const DecisionRecord& r) { return layer_of(r.layer); },
      [](const DecisionRecord& r) { return r.token; });
  SortUnique(
      &bounds_, [&](const BoundRecord& r) { return layer_of(r.layer) * kSites + static_cast<size_t>(r.site); },
      [](const BoundRecord& r) { return r.token; });
  SortByStep(&dispatches_);
  SortByStep(&executions_);
  SortRoutes();
}

}  // namespace trivet::record
