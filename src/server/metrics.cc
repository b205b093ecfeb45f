// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

namespace trivet::server {
namespace {

using prometheus::MetricType;

struct Row {
  const char* name;   // after trivet_
  const char* alias;  // after vllm: or null
  const char* help;
  MetricType type;
  double value;
};

prometheus::MetricFamily Family(const std::string& name, const Row& row, const std::string& model) {
  prometheus::ClientMetric metric;
  metric.label = {{"model_name", model}};
  metric.counter.value = row.value;
  metric.gauge.value = row.value;
  return {name, row.help, row.type, {metric}};
}

// What each rank's memory is for.
prometheus::MetricFamily MemoryFamily(const plan::MemoryPlan& memory, const std::string& model) {
  prometheus::MetricFamily family{"trivet_memory_bytes", "Memory that was planned for a rank.", MetricType::Gauge, {}};
  for (size_t r = 0; r < memory.ranks.size(); ++r) {
    const plan::RankMemory& rank = memory.ranks[r];
    const std::pair<const char*, int64_t> parts[] = {{"weights", rank.weights},
                                                     {"kv", rank.kv},
                                                     {"states", rank.states},
                                                     {"snapshots", rank.snapshots},
                                                     {"scratch", rank.scratch}};
    for (const auto& [part, bytes] : parts) {
      prometheus::ClientMetric metric;
      metric.label = {{"model_name", model}, {"rank", std::to_string(r)}, {"for", part}};
      metric.gauge.value = static_cast<double>(bytes);
      family.metric.push_back(metric);
    }
  }
  return family;
}

// What each rank's share of the steps' time went to other ranks.
prometheus::MetricFamily CollectiveFamily(const engine::EngineTimes& times, const std::string& model) {
  prometheus::MetricFamily family{"trivet_collective_seconds_total",
                                  "Of forward_seconds_total, time in exchanges with other ranks, waiting included.",
                                  MetricType::Counter,
                                  {}};
  for (size_t r = 0; r < times.collective_us.size(); ++r) {
    prometheus::ClientMetric metric;
    metric.label = {{"model_name", model}, {"rank", std::to_string(r)}};
    metric.counter.value = static_cast<double>(times.collective_us[r]) * 1e-6;
    family.metric.push_back(metric);
  }
  return family;
}

}  // namespace

std::string MetricsText(const engine::ServiceCounts& counts, const std::string& model,
                        std::vector<prometheus::MetricFamily> more) {
  const sched::SchedulerCounts& scheduler = counts.scheduler;
  const auto used = static_cast<double>(counts.pages - scheduler.free_pages) / static_cast<double>(counts.pages);
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const auto seconds = [](int64_t us) { return static_cast<double>(us) * 1e-6; };
  const Row rows[] = {
      {"requests_running", "num_requests_running", "Sequences in the batch.", MetricType::Gauge,
       number(scheduler.running)},
      {"requests_waiting", "num_requests_waiting", "Sequences that wait for a place in the batch.", MetricType::Gauge,
       number(scheduler.waiting)},
      {"kv_cache_usage", "kv_cache_usage_perc", "KV pages in use, 0 to 1.", MetricType::Gauge, used},
      {"kv_cache_tokens", nullptr, "Tokens that the KV cache holds.", MetricType::Gauge,
       number(counts.memory.kv_tokens * counts.memory.replicas)},
      {"requests_total", nullptr, "Sequences accepted.", MetricType::Counter, number(counts.requests)},
      {"requests_ended_total", "request_success_total", "Sequences that came to their end.", MetricType::Counter,
       number(counts.ended)},
      {"requests_cancelled_total", nullptr, "Sequences whose client left.", MetricType::Counter,
       number(counts.cancelled)},
      {"prompt_tokens_total", "prompt_tokens_total", "Tokens of accepted prompts.", MetricType::Counter,
       number(counts.prompt_tokens)},
      {"generated_tokens_total", "generation_tokens_total", "Tokens generated.", MetricType::Counter,
       number(counts.generated_tokens)},
      {"preemptions_total", "num_preemptions_total", "Times a sequence lost its pages to an earlier one.",
       MetricType::Counter, number(scheduler.preemptions)},
      {"prefix_cache_hits_total", nullptr, "Sequences that began with known pages.", MetricType::Counter,
       number(scheduler.prefix_hits)},
      {"prefix_cache_hit_tokens_total", "prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
       MetricType::Counter, number(scheduler.prefix_hit_tokens)},
      {"prefix_cache_evictions_total", nullptr, "Known pages that gave way.", MetricType::Counter,
       number(scheduler.prefix_evictions)},
      {"prefix_cache_pages", nullptr, "Known pages.", MetricType::Gauge, number(scheduler.cached_pages)},
      {"prefix_cache_snapshots", nullptr, "Recurrent states kept for known pages.", MetricType::Gauge,
       number(scheduler.snapshots)},
      {"steps_total", nullptr, "Steps of the engine.", MetricType::Counter, number(scheduler.steps)},
      {"forward_seconds_total", nullptr, "Time of all steps on all ranks.", MetricType::Counter,
       seconds(counts.times.forward_us)},
      {"sample_seconds_total", nullptr, "Time from logits to tokens.", MetricType::Counter,
       seconds(counts.times.sample_us)},
      {"deliver_seconds_total", nullptr, "Time from tokens to texts, and of handing them to connections.",
       MetricType::Counter, seconds(counts.times.deliver_us)},
      {"schedule_seconds_total", nullptr, "Time of choosing what steps compute.", MetricType::Counter,
       seconds(counts.times.schedule_us)},
  };
  std::vector<prometheus::MetricFamily> families = std::move(more);
  families.push_back(MemoryFamily(counts.memory, model));
  families.push_back(CollectiveFamily(counts.times, model));
  for (const Row& row : rows) {
    families.push_back(Family(std::string("trivet_") + row.name, row, model));
    if (row.alias != nullptr) families.push_back(Family(std::string("vllm:") + row.alias, row, model));
  }
  const prometheus::TextSerializer serializer;
  return static_cast<const prometheus::Serializer&>(serializer).Serialize(families);
}

}  // namespace trivet::server
