// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/plan_table.h"
#include "engine/plan_facts.h"
#include "plan/plan_json.h"

namespace trivet::cli {

Run AddPlan(CLI::App* app) {
  auto flags = std::make_shared<LayoutFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  auto json = std::make_shared<bool>(false);     // shared_ptr: likewise
  flags->Add(app);
  app->add_flag("--json", *json, "the plan as JSON");
  return [flags, json]() -> Status {
    TRY_ASSIGN(const plan::LayoutOptions options, flags->Options());
    TRY_ASSIGN(const engine::OpenedModel model, flags->Open());
    TRY_ASSIGN(const plan::Layout layout, plan::MakeLayout(model.geometry, options));
    const plan::ElementBytes bytes = engine::BytesOf(model);
    const plan::LayoutCost cost = plan::PriceLayout(model.geometry, layout, bytes);
    if (*json) {
      std::puts(DumpJson(plan::PlanJson(model.geometry, layout, cost), 2).c_str());
      return {};
    }
    std::fputs(RenderLayoutTable(model.geometry, layout, cost).c_str(), stdout);
    std::printf("\nOther rank counts\n%s", RenderOtherRanks(model.geometry, bytes).c_str());
    return {};
  };
}

}  // namespace trivet::cli
