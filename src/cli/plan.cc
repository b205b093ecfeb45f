// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "base/machine_memory.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/plan_table.h"
#include "engine/limits.h"
#include "engine/plan_facts.h"
#include "plan/plan_json.h"

namespace trivet::cli {

Run AddPlan(CLI::App* app) {
  auto flags = std::make_shared<LayoutFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  auto sizes = std::make_shared<SizeFlags>();    // shared_ptr: likewise
  auto json = std::make_shared<bool>(false);     // shared_ptr: likewise
  flags->Add(app);
  flags->AddDummy(app);
  sizes->prefix_cache = "on";  // as `serve` has it
  sizes->Add(app);
  app->add_flag("--json", *json, "the plan as JSON");
  return [flags, sizes, json]() -> Status {
    engine::EngineOptions options;
    TRY_ASSIGN(options.layout, flags->Options());
    TRY(sizes->Fill(&options));
    TRY_ASSIGN(const engine::OpenedModel model, flags->Open());
    TRY(flags->CheckPlacement(model.geometry, options.layout));
    TRY_ASSIGN(const plan::Layout layout, plan::MakeLayout(model.geometry, options.layout));
    const plan::ElementBytes bytes = engine::BytesOf(model);
    const plan::LayoutCost cost = plan::PriceLayout(model.geometry, layout, bytes);
    TRY_ASSIGN(const int64_t available, AvailableMemory());
    const Result<engine::EngineSizes> sized = engine::MakeSizes(model.geometry, layout, cost, options, available);
    // What does not fit this machine may fit another one; what no machine could do is refused.
    if (!sized.ok() && sized.error().code != Code::kCapacity) return sized.error();
    if (*json) {
      Json whole = plan::PlanJson(model.geometry, layout, cost);
      whole["memory"] = sized.ok() ? plan::MemoryJson(sized->memory) : Json{{"refused", sized.error().message}};
      std::puts(DumpJson(whole, 2).c_str());
      return {};
    }
    std::fputs(RenderLayoutTable(model.geometry, layout, cost).c_str(), stdout);
    std::printf("\n%s", sized.ok() ? RenderMemoryTable(sized->memory).c_str()
                                   : fmt::format("not on this machine: {}\n", sized.error().message).c_str());
    std::printf("\nOther rank counts, with the cuts priced cheapest\n%s",
                RenderOtherRanks(model.geometry, bytes, layout.ranks).c_str());
    return {};
  };
}

}  // namespace trivet::cli
