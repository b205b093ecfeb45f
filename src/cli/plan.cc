// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/plan_table.h"
#include "device/device.h"
#include "engine/limits.h"
#include "engine/plan_facts.h"
#include "plan/plan_json.h"

namespace trivet::cli {
namespace {

// What `plan` has beside layout and sizes.
struct PlanFlags {
  std::string backend = "cpu";
  int64_t memory = 0;
  bool json = false;

  void Add(CLI::App* app) {
    app->add_option("--backend", backend, "whose memory ranks are sized by: cpu, or cuda for that of GPUs");
    AddSize(app, "--memory", &memory,
            "memory of all ranks together in place of what is free here, such as 64G; 0: what the machine has "
            "free, or with --backend cuda its GPUs");
    app->add_flag("--json", json, "the plan as JSON");
  }
};

// What the ranks' memory will be.  Errors: kCapacity when it does not fit, or when there is none of that kind here.
Result<plan::MemoryPlan> PlanMemory(const engine::OpenedModel& model, const plan::Layout& layout,
                                    const plan::LayoutCost& cost, const engine::EngineOptions& options,
                                    int64_t memory) {
  constexpr int64_t kMost = int64_t{1} << 60;
  if (memory > kMost) {
    return MakeError(Code::kUsage, fmt::format("--memory: expected 0 to {} bytes, found {}; give a size in that range",
                                               kMost, memory));
  }
  int64_t available = memory;
  if (memory == 0) {
    const Result<int64_t> free = device::Device::FreeBytesOfAll(options.backend, layout.world());
    if (!free.ok()) {
      return MakeError(Code::kCapacity,
                       fmt::format("{}, or say with --memory how much there will be", free.error().message));
    }
    available = *free;
  }
  TRY_ASSIGN(engine::EngineSizes sizes, engine::MakeSizes(model.geometry, layout, cost, options, available));
  if (memory > 0) sizes.memory.source = "--memory";
  return std::move(sizes.memory);
}

}  // namespace

Run AddPlan(CLI::App* app) {
  auto flags = std::make_shared<LayoutFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  auto sizes = std::make_shared<SizeFlags>();    // shared_ptr: likewise
  auto own = std::make_shared<PlanFlags>();      // shared_ptr: likewise
  flags->Add(app);
  flags->AddDummy(app);
  sizes->prefix_cache = "on";  // as `serve` has it
  sizes->Add(app);
  own->Add(app);
  return [flags, sizes, own]() -> Status {
    engine::EngineOptions options;
    TRY_ASSIGN(options.layout, flags->Options());
    TRY(sizes->Fill(&options));
    TRY_ASSIGN(options.backend, ParseBackend(own->backend));
    TRY_ASSIGN(const engine::OpenedModel model, flags->Open());
    TRY(flags->CheckPlacement(model.geometry, options.layout));
    TRY_ASSIGN(const plan::Layout layout, plan::MakeLayout(model.geometry, options.layout));
    TRY(engine::CheckBackend(layout, options.backend));
    const plan::ElementBytes bytes = engine::BytesOf(model, options.kv_dtype);
    const plan::LayoutCost cost = plan::PriceLayout(model.geometry, layout, bytes);
    const Result<plan::MemoryPlan> memory = PlanMemory(model, layout, cost, options, own->memory);
    // What does not fit this machine may fit another one; what no machine could do is refused.
    if (!memory.ok() && memory.error().code != Code::kCapacity) return memory.error();
    if (own->json) {
      Json whole = plan::PlanJson(model.geometry, layout, cost);
      whole["memory"] = memory.ok() ? plan::MemoryJson(*memory) : Json{{"refused", memory.error().message}};
      std::puts(DumpJson(whole, 2).c_str());
      return {};
    }
    std::fputs(RenderLayoutTable(model.geometry, layout, cost).c_str(), stdout);
    std::printf("\n%s", memory.ok() ? RenderMemoryTable(*memory).c_str()
                                    : fmt::format("not on this machine: {}\n", memory.error().message).c_str());
    std::printf("\nOther rank counts, with the cuts priced cheapest\n%s",
                RenderOtherRanks(model.geometry, bytes, layout.ranks).c_str());
    return {};
  };
}

}  // namespace trivet::cli
