// SPDX-License-Identifier: Apache-2.0
// A service's counts in the text form that Prometheus reads.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "engine/service.h"

namespace trivet::server {

/// Every count under its own name (trivet_...), and those that dashboards for vLLM look for under theirs (vllm:...).
///   model  the label model_name
///   more   families to be shown as well
std::string MetricsText(const engine::ServiceCounts& counts, const std::string& model,
                        std::vector<prometheus::MetricFamily> more = {});

}  // namespace trivet::server
