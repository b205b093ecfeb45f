// SPDX-License-Identifier: Apache-2.0
#include "server/request_stats.h"

#include <algorithm>
#include <optional>

namespace trivet::server {
namespace {

// Seconds, each about twice the one before; per token a hundredth of that.
const prometheus::Histogram::BucketBoundaries kLong = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                       1,     2.5,    5,     10,   25,    50,   100, 250};
const prometheus::Histogram::BucketBoundaries kShort = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                                        0.025,  0.05,    0.1,    0.25,  0.5,    1,     2.5};

struct Quantity {
  const char* name;   // after trivet_
  const char* alias;  // after vllm:
  const char* help;
  const prometheus::Histogram::BucketBoundaries& buckets;
};

const Quantity kQuantities[] = {
    {"request_queue_seconds", "request_queue_time_seconds", "From submission to a place in the batch.", kLong},
    {"request_prefill_seconds", "request_prefill_time_seconds", "From a place in the batch to the first token.", kLong},
    {"time_to_first_token_seconds", "time_to_first_token_seconds", "From submission to the first token.", kLong},
    {"time_per_output_token_seconds", "time_per_output_token_seconds", "Mean time of a token after the first.", kShort},
    {"request_seconds", "e2e_request_latency_seconds", "From submission to the last token.", kLong}};

double Seconds(int64_t from_us, int64_t to_us) {
  return static_cast<double>(std::max<int64_t>(0, to_us - from_us)) * 1e-6;
}

// What each quantity is of an answer with tokens; nothing where the answer does not show it.
std::vector<std::optional<double>> Values(const EndedAnswer& answer) {
  const engine::GenerationTimes& times = answer.times;
  const double decode = Seconds(times.first_us, times.last_us);
  std::optional<double> per_token;
  if (answer.tokens > 1) per_token = decode / static_cast<double>(answer.tokens - 1);
  return {Seconds(times.submitted_us, times.begun_us), Seconds(times.begun_us, times.first_us),
          Seconds(times.submitted_us, times.first_us), per_token, Seconds(times.submitted_us, times.last_us)};
}

}  // namespace

Json TimingsJson(const EndedAnswer& answer) {
  const engine::GenerationTimes& times = answer.times;
  const double decode = Seconds(times.first_us, times.last_us);
  return {{"queue_ms", 1e3 * Seconds(times.submitted_us, times.begun_us)},
          {"prompt_n", answer.prompt_tokens},
          {"prompt_ms", 1e3 * Seconds(times.begun_us, times.first_us)},
          {"predicted_n", answer.tokens},
          {"predicted_ms", 1e3 * decode},
          {"predicted_per_second", decode > 0 ? static_cast<double>(answer.tokens - 1) / decode : 0}};
}

RequestStats::RequestStats(const std::string& model) {
  for (const Quantity& quantity : kQuantities) {
    histograms_.emplace_back();
    for (const std::string& name : {std::string("trivet_") + quantity.name, std::string("vllm:") + quantity.alias}) {
      auto& family = prometheus::BuildHistogram().Name(name).Help(quantity.help).Register(registry_);
      histograms_.back().push_back(&family.Add({{"model_name", model}}, quantity.buckets));
    }
  }
}

void RequestStats::Add(const EndedAnswer& answer) {
  const std::vector<std::optional<double>> values = Values(answer);
  for (size_t i = 0; i < values.size() && answer.times.first_us > 0; ++i) {
    if (!values[i].has_value()) continue;
    for (prometheus::Histogram* histogram : histograms_[i]) histogram->Observe(*values[i]);
  }
  const std::lock_guard lock(mutex_);
  recent_.push_front(answer);
  if (recent_.size() > kRecentAnswers) recent_.pop_back();
}

Json RequestStats::Recent() const {
  const std::lock_guard lock(mutex_);
  Json list = Json::array();
  for (const EndedAnswer& answer : recent_) {
    list.push_back({{"created", answer.created}, {"chat", answer.chat}, {"finish_reason", answer.finish}});
    list.back().update(TimingsJson(answer));
  }
  return list;
}

}  // namespace trivet::server
