// SPDX-License-Identifier: Apache-2.0
#include "plan/memory_plan.h"

namespace trivet::plan {

int64_t MemoryPlan::total() const {
  int64_t total = 0;
  for (const RankMemory& rank : ranks) total += rank.total();
  return total;
}

Json MemoryJson(const MemoryPlan& memory) {
  Json json = {{"source", memory.source},       {"available", memory.available}, {"budget", memory.budget},
               {"total", memory.total()},       {"kv_tokens", memory.kv_tokens}, {"context", memory.context},
               {"sequences", memory.sequences}, {"snapshots", memory.snapshots}, {"replicas", memory.replicas},
               {"ranks", Json::array()}};
  for (const RankMemory& rank : memory.ranks) {
    json["ranks"].push_back({{"weights", rank.weights},
                             {"kv", rank.kv},
                             {"states", rank.states},
                             {"snapshots", rank.snapshots},
                             {"scratch", rank.scratch}});
  }
  return json;
}

}  // namespace trivet::plan
