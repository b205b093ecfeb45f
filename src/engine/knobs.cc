// SPDX-License-Identifier: Apache-2.0
#include "engine/knobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/str.h"

namespace trivet::engine {
namespace {

using proof::Knob;
using proof::Scope;

const char* NumericsName(const EngineOptions& options) {
  if (options.numerics == kernels::Numerics::kFast) return "fast";
  return options.kernels.contract == kernels::Contract::kPortable ? "portable" : "exact";
}

Error WrongValue(const AskedKnob& asked, const char* expected) {
  return MakeError(Code::kUsage, fmt::format("\"{}\": expected {}, found {}; correct it", asked.path, expected,
                                             DumpJson(asked.value).substr(0, 60)));
}

Result<int64_t> Whole(const AskedKnob& asked) {
  if (!IsInt64(asked.value) || asked.value < 0) return WrongValue(asked, "a whole number, 0 or more");
  return asked.value.get<int64_t>();
}

Result<std::string> Text(const AskedKnob& asked) {
  if (!asked.value.is_string() || asked.value == "") return WrongValue(asked, "a text");
  return asked.value.get<std::string>();
}

template <class T>
Status SetWhole(const AskedKnob& asked, T* option) {
  TRY_ASSIGN(const int64_t value, Whole(asked));
  *option = static_cast<T>(value);
  return {};
}

Status SetPlacement(const AskedKnob& asked, EngineOptions* options) {
  TRY_ASSIGN(const std::string path, Text(asked));
  TRY_ASSIGN(options->layout.placement, plan::ReadPlacement((std::filesystem::path(asked.dir) / path).string()));
  return {};
}

// A position that is found in the cache is computed by nobody, so there is nothing to record of it.
Status SetPrefixCache(const AskedKnob& asked, EngineOptions* options) {
  if (!asked.value.is_boolean()) return WrongValue(asked, "true or false");
  options->prefix_cache = false;
  if (asked.value == false) return {};
  return MakeError(Code::kUnsupported,
                   "\"kv.prefix_cache\": expected false, since a position that is found in the "
                   "cache is computed by nobody and recorded by nobody, found true; leave it out");
}

// A name in a plan, and the one under which the running engine shows it.
struct Setter {
  const char* path;
  const char* shown;
  Scope scope;
  Status (*set)(const AskedKnob& asked, EngineOptions* options);
};

constexpr const char* kCuts = "cut.";

constexpr Setter kSetters[] = {
    {"parallel.tp", "parallel.tp", Scope::kProcess,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->layout.ranks); }},
    {"parallel.cp", "parallel.cp", Scope::kProcess,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->layout.context); }},
    {"parallel.cp_split", "parallel.cp_split", Scope::kProcess,
     [](const AskedKnob& asked, EngineOptions* options) -> Status {
       TRY_ASSIGN(const std::string text, Text(asked));
       TRY_ASSIGN(options->layout.context_split, plan::ParseSequenceSplit(text));
       return {};
     }},
    {"parallel.cp_stretch", "parallel.cp_stretch", Scope::kProcess,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->layout.context_stretch); }},
    {"parallel.sp", "parallel.sp", Scope::kProcess,
     [](const AskedKnob& asked, EngineOptions* options) -> Status {
       if (!asked.value.is_boolean()) return WrongValue(asked, "true or false");
       options->layout.sequence_parallel = asked.value.get<bool>();
       return {};
     }},
    {"parallel.pp", "parallel.pp", Scope::kProcess,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->layout.stages); }},
    {"parallel.dp", "parallel.dp", Scope::kProcess,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->layout.replicas); }},
    {"parallel.ep", "parallel.ep", Scope::kDistributed,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->layout.ep); }},
    {"launch", "launch", Scope::kProcess,
     [](const AskedKnob& asked, EngineOptions* options) -> Status {
       TRY_ASSIGN(const std::string text, Text(asked));
       TRY_ASSIGN(options->launch, ParseLaunch(text));
       return {};
     }},
    {"placement.map", "placement.version", Scope::kEngine, SetPlacement},
    {"numerics.contract", "numerics.contract", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) -> Status {
       TRY_ASSIGN(const std::string text, Text(asked));
       return SetNumerics(text, options);
     }},
    {"backend", "backend", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) -> Status {
       TRY_ASSIGN(const std::string text, Text(asked));
       TRY_ASSIGN(options->backend, ParseBackend(text));
       return {};
     }},
    {"threads", "threads", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->threads); }},
    {"kernels.rows", "kernels.rows", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) -> Status {
       TRY_ASSIGN(options->kernels.rows, Text(asked));
       return {};
     }},
    {"kv.prefix_cache", "kv.prefix_cache", Scope::kEngine, SetPrefixCache},
    {"kv.dtype", "kv.dtype", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) -> Status {
       TRY_ASSIGN(const std::string text, Text(asked));
       TRY_ASSIGN(options->kv_dtype, cache::ParseKvDtype(text));
       return {};
     }},
    {"kv.tokens", "kv.tokens", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->kv_tokens); }},
    {"batch.prefill_chunk", "batch.prefill_chunk", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->prefill_chunk); }},
    {"batch.prefill_budget", "batch.prefill_budget", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->prefill_budget); }},
    {"batch.max_sequences", "batch.max_sequences", Scope::kEngine,
     [](const AskedKnob& asked, EngineOptions* options) { return SetWhole(asked, &options->max_sequences); }},
};

const Setter* FindSetter(const std::string& path) {
  const auto* found =
      std::find_if(std::begin(kSetters), std::end(kSetters), [&](const Setter& setter) { return path == setter.path; });
  return found == std::end(kSetters) ? nullptr : found;
}

Scope ScopeOf(const std::string& shown) {
  const auto* found = std::find_if(std::begin(kSetters), std::end(kSetters),
                                   [&](const Setter& setter) { return shown == setter.shown; });
  return found == std::end(kSetters) ? Scope::kEngine : found->scope;
}

std::string ShownAs(const std::string& path) {
  const Setter* setter = FindSetter(path);
  return setter == nullptr ? path : setter->shown;
}

// The suffix of the row that computes products, which is what a choice of rows is made for.
std::string ProductRow(const kernels::Kernels& kernels) {
  return std::string(kernels.gemm->name.substr(kernels.gemm->name.find('/') + 1));
}

std::vector<Knob> LayoutKnobs(const LiveEngine& live) {
  constexpr const char* kLayout = "layout that the shards were loaded by";
  const plan::Placement placement = GroupsOf(live.model.geometry, live.layout).placement;
  const plan::LayoutOptions& asked = live.options.layout;
  std::vector<Knob> knobs;
  const auto replicas = static_cast<int64_t>(live.schedulers.size());
  const int64_t stage = live.worker.stage().size(), world = live.worker.world().size();
  knobs.push_back({"parallel.tp", {}, asked.ranks, live.layout.ranks, stage, "communicator"});
  const int64_t context = live.worker.context().size();
  const plan::ContextSplit& split = live.layout.context;
  knobs.push_back({"parallel.cp", {}, asked.context, split.ranks, context, "communicator"});
  const char* kind = plan::SequenceSplitName(split.split);
  knobs.push_back({"parallel.cp_split", {}, plan::SequenceSplitName(asked.context_split), kind, kind, kLayout});
  knobs.push_back({"parallel.cp_stretch",
                   {},
                   asked.context_stretch,
                   split.stretch,
                   split.stretch,
                   kLayout,
                   asked.context_stretch == 0});
  knobs.push_back({"parallel.sp",
                   {},
                   asked.sequence_parallel,
                   live.layout.sequence_parallel,
                   live.worker.rows().dealt,
                   "split that rows are shared out by"});
  knobs.push_back({"parallel.pp",
                   {},
                   asked.stages,
                   live.layout.stages.size(),
                   world / stage / context / replicas,
                   "communicators"});
  knobs.push_back({"parallel.dp", {}, asked.replicas, live.layout.replicas, replicas, "schedulers"});
  knobs.push_back({"parallel.ep", {}, asked.ep, placement.ep_size(), placement.ep_size(), kLayout, asked.ep == 0});
  knobs.push_back({"placement.version",
                   {},
                   asked.placement ? asked.placement->version : "auto",
                   placement.version,
                   placement.version,
                   kLayout,
                   !asked.placement});
  for (const plan::AxisPlan& axis : live.layout.axes) {
    const auto cut = asked.cuts.find(axis.axis);
    const bool chosen = cut == asked.cuts.end();
    knobs.push_back({kCuts + axis.axis, {}, chosen ? "auto" : cut->second, axis.cut, axis.cut, kLayout, chosen});
  }
  if (const std::optional<Launch> running = live.ranks.running()) {
    const std::string asked_for = LaunchName(live.options.launch);
    knobs.push_back({"launch", {}, asked_for, asked_for, LaunchName(*running), "ranks that were started"});
  }
  return knobs;
}

std::vector<Knob> ArithmeticKnobs(const LiveEngine& live) {
  const std::string contract = live.worker.Contract(), row = ProductRow(live.worker.kernels());
  const std::string& rows = live.options.kernels.rows;
  return {{"numerics.contract", {}, NumericsName(live.options), contract, contract, "rows that run", true},
          {"kernels.rows",
           {},
           rows.empty() ? "auto" : rows,
           rows.empty() ? row : rows,
           row,
           "row of products that runs",
           rows.empty()},
          {"backend",
           {},
           BackendName(live.options.backend),
           BackendName(live.planned.backend),
           BackendName(live.worker.device().backend()),
           "device"},
          {"threads",
           {},
           live.options.threads,
           live.planned.threads,
           live.worker.threads(),
           "thread pool",
           live.options.threads == 0}};
}

std::vector<Knob> ScheduleKnobs(const LiveEngine& live) {
  const sched::SchedulerLimits &planned = live.planned.limits, &now = live.schedulers[0].limits();
  const EngineOptions& asked = live.options;
  const auto tokens = [](const sched::SchedulerLimits& limits) { return int64_t{limits.pages} * sched::kPageTokens; };
  constexpr const char* kScheduler = "scheduler";
  return {{"kv.dtype",
           {},
           cache::KvDtypeName(asked.kv_dtype),
           cache::KvDtypeName(live.planned.kv_dtype),
           cache::KvDtypeName(live.worker.kv_dtype()),
           "caches"},
          {"kv.prefix_cache", {}, asked.prefix_cache, planned.prefix_cache, now.prefix_cache, kScheduler},
          {"kv.tokens", {}, asked.kv_tokens, tokens(planned), tokens(now), kScheduler, asked.kv_tokens == 0},
          {"batch.prefill_chunk", {}, asked.prefill_chunk, planned.prefill_chunk, now.prefill_chunk, kScheduler},
          {"batch.prefill_budget", {}, asked.prefill_budget, planned.prefill_budget, now.prefill_budget, kScheduler},
          {"batch.max_sequences", {}, asked.max_sequences, planned.max_sequences, now.max_sequences, kScheduler}};
}

}  // namespace

Status SetNumerics(const std::string& text, EngineOptions* options) {
  if (text != "exact" && text != "portable" && text != "fast") {
    return MakeError(Code::kUsage, fmt::format("--numerics: expected exact, portable or fast, found \"{}\"; choose one",
                                               Quote(text)));
  }
  options->numerics = text == "fast" ? kernels::Numerics::kFast : kernels::Numerics::kExact;
  options->kernels.contract = text == "portable" ? kernels::Contract::kPortable : kernels::Contract::kMatrix;
  return {};
}

std::vector<Knob> ReadKnobs(const LiveEngine& live) {
  std::vector<Knob> all;
  for (auto* read : {LayoutKnobs, ArithmeticKnobs, ScheduleKnobs}) {
    for (Knob& knob : read(live)) {
      knob.scope = ScopeOf(knob.path);
      all.push_back(std::move(knob));
    }
  }
  return all;
}

Status SetKnob(const AskedKnob& asked, EngineOptions* options) {
  if (asked.path.starts_with(kCuts)) {
    TRY_ASSIGN(const std::string cut, Text(asked));
    return plan::ParseCuts(asked.path.substr(std::string(kCuts).size()) + "=" + cut, &options->layout);
  }
  if (const Setter* setter = FindSetter(asked.path)) return setter->set(asked, options);
  std::vector<std::string> names;
  for (const Setter& setter : kSetters) names.emplace_back(setter.path);
  return MakeError(Code::kUsage, fmt::format("settings: expected {} or cut.AXIS, found \"{}\"; correct or remove it",
                                             fmt::join(names, ", "), Quote(asked.path)));
}

std::vector<proof::Application> Apply(const std::vector<AskedKnob>& asked, const std::vector<Knob>& live) {
  std::vector<proof::Application> all;
  for (const AskedKnob& one : asked) {
    const std::string shown = ShownAs(one.path);
    const auto found = std::find_if(live.begin(), live.end(), [&](const Knob& knob) { return knob.path == shown; });
    if (found != live.end()) {
      all.push_back({*found, proof::StatusOfAsked(*found)});
      all.back().knob.path = one.path;
      continue;
    }
    all.push_back({{one.path, ScopeOf(shown), one.value, {}, {}, "nothing that runs shows it under this layout"},
                   proof::Materialization::kUnobservable});
  }
  return all;
}

std::vector<proof::Application> NotApplied(const std::vector<AskedKnob>& asked, const std::string& varied,
                                           const Error& error) {
  using proof::Materialization;
  const Materialization status =
      error.code == Code::kUnsupported ? Materialization::kUnsupported : Materialization::kError;
  std::vector<proof::Application> all;
  for (const AskedKnob& one : asked) {
    const bool blamed = one.path == varied;
    all.push_back(
        {{one.path, ScopeOf(ShownAs(one.path)), one.value, {}, {}, blamed ? error.message : "no engine came up"},
         blamed || varied.empty() ? status : Materialization::kUnobservable});
  }
  return all;
}

}  // namespace trivet::engine
