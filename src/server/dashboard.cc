// SPDX-License-Identifier: Apache-2.0
#include "server/dashboard.h"

namespace trivet::server {

Json DashboardJson(const engine::ServiceCounts& counts) {
  const engine::EngineTimes& times = counts.times;
  return {{"running", counts.scheduler.running},
          {"waiting", counts.scheduler.waiting},
          {"steps", counts.scheduler.steps},
          {"generated_tokens", counts.generated_tokens},
          {"prompt_tokens", counts.prompt_tokens},
          {"kv", {{"pages", counts.pages}, {"used", counts.pages - counts.scheduler.free_pages}}},
          {"memory", plan::MemoryJson(counts.memory)},
          {"times",
           {{"forward_us", times.forward_us},
            {"schedule_us", times.schedule_us},
            {"sample_us", times.sample_us + times.deliver_us},
            {"collective_us", times.collective_us}}}};
}

}  // namespace trivet::server
