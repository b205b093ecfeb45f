// SPDX-License-Identifier: Apache-2.0
// What requests have taken: histograms for Prometheus, and the last ones for the dashboard.
#pragma once

#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/service.h"

namespace trivet::server {

/// An answer that has ended.
struct EndedAnswer {
  int64_t created = 0;  // seconds since 1970
  bool chat = false;
  int64_t prompt_tokens = 0, tokens = 0;
  std::string finish;  // reason
  engine::GenerationTimes times;
};

/// Milliseconds and rates of one answer, as {"queue_ms", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms",
/// "predicted_per_second"}: waiting for a place, from there to the first token, and from the first token to the last.
Json TimingsJson(const EndedAnswer& answer);

/// Answers that the dashboard shows.
inline constexpr size_t kRecentAnswers = 20;

/// Counts answers. For any thread.
class RequestStats {
 public:
  ///   model  the label model_name
  explicit RequestStats(const std::string& model);

  void Add(const EndedAnswer& answer);
  /// The histograms, under our names and vLLM's.
  std::vector<prometheus::MetricFamily> Collect() const { return registry_.Collect(); }
  /// The last answers, the latest first.
  Json Recent() const;

 private:
  prometheus::Registry registry_;
  std::vector<std::vector<prometheus::Histogram*>> histograms_;  // by quantity
  mutable std::mutex mutex_;                                     // of what follows
  std::deque<EndedAnswer> recent_;
};

}  // namespace trivet::server
