// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>

#include "base/list.h"
#include "base/str.h"
#include "cli/bench_group.h"
#include "cli/progress.h"
#include "engine/knobs.h"

namespace trivet::cli {
namespace {

// Folder of the running program.
std::string ProgramDir() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string(".") : program.parent_path().string();
}

}  // namespace

void RefuseEmpty(CLI::Option* option) {
  option->check([](const std::string& text) { return text.empty() ? "expected a text, found nothing" : ""; });
}

CLI::Option* AddSize(CLI::App* app, const std::string& name, int64_t* bytes, const std::string& description) {
  const auto read = [](std::string& text) -> std::string {
    const std::optional<int64_t> size = ParseSize(text);
    if (!size) {
      return fmt::format(
          "expected a whole number of bytes below 2^63, with a unit or without, such as 64G or 500MiB, "
          "found \"{}\"",
          Quote(text));
    }
    text = std::to_string(*size);
    return "";
  };
  return app->add_option(name, *bytes, description)->type_name("SIZE")->transform(CLI::Validator(read, ""));
}

void RefuseNoNumber(CLI::Option* option) {
  const bool integer = option->get_type_name() == "INT";
  const auto read = [integer](std::string& text) -> std::string {
    if (text.empty()) return "expected a number, found nothing";
    if (!integer) {
      double value = 0;
      const char* const end = text.data() + text.size();
      const auto [stopped, error] = std::from_chars(text.data(), end, value);
      const bool whole = error == std::errc() && stopped == end;
      return whole ? "" : fmt::format("expected a decimal number, found \"{}\"", Quote(text));
    }
    const Result<int64_t> value = ParseInt(text, "");
    if (!value.ok()) return fmt::format("expected an integer of 64 bits, found \"{}\"", Quote(text));
    text = std::to_string(*value);  // the library takes 010 for 8
    return "";
  };
  option->transform(CLI::Validator(read, ""));
}

void LayoutFlags::Add(CLI::App* app) {
  app->add_option("MODEL", model, "directory with config.json and safetensors files, GGUF file, or \"demo\"")
      ->required();
  app->add_option("--ranks,-n,--tensor-parallel-size,--tp", ranks,
                  "ranks to cut every layer over; of all shares, stages and replicas together 1 to 16");
  app->add_option("--cp,--context-parallel-size", context,
                  "groups of so many ranks that hold the same and share out the positions of every sequence");
  app->add_option("--cp-split", context_split,
                  "contiguous: of every stretch one chunk for each share; zigzag: an early and a late one");
  app->add_option("--cp-stretch", context_stretch,
                  "positions that are split together; 0: so many that a chunk is 64 positions");
  app->add_flag(
      "--sp,--sequence-parallel", sequence_parallel,
      "ranks that cut a layer share out its rows, by their positions, for residual stream, norms and routers");
  app->add_option("--pp,--pipeline-parallel-size", stages,
                  "pipeline stages, each of so many ranks and of consecutive layers, dealt by their weights");
  RefuseEmpty(app->add_option("--pp-layers", stage_layers,
                              "layers of every stage, such as 1,3,4, instead of those dealt; commas or repeats")
                  ->take_all());
  app->add_option("--dp,--data-parallel-size", replicas,
                  "replicas of all that, each with caches and a share of the requests of its own");
  RefuseEmpty(
      app->add_option("--cut", cuts, "force a cut, such as attn=pad or experts=whole; commas or repeats")->take_all());
  app->add_option(
      "--ep,--ep-size", ep,
      "groups of ranks that experts are dealt to, 1 to the ranks; the ranks of a group cut the width of its "
      "experts; 0: as priced cheapest");
  RefuseEmpty(
      app->add_option("--placement", placement, "file of a map that says which expert is in which group and slot"));
  app->add_option("--pad-to", pad_to, "pad every axis to the geometry it has at this many ranks; 0: no");
}

Result<plan::LayoutOptions> LayoutFlags::Options() const {
  plan::LayoutOptions options;
  options.ranks = ranks;
  options.context = context;
  TRY_ASSIGN(options.context_split, plan::ParseSequenceSplit(context_split));
  options.context_stretch = context_stretch;
  options.sequence_parallel = sequence_parallel;
  options.stages = stages;
  TRY_ASSIGN(const std::vector<std::string> layers, ParseLists(stage_layers, "--pp-layers"));
  for (const std::string& text : layers) {
    TRY_ASSIGN(const int64_t count, ParseInt(text, "--pp-layers"));
    options.stage_layers.push_back(count);
  }
  options.replicas = replicas;
  options.pad_to = pad_to;
  if (ep < 0) {
    return MakeError(Code::kUsage, fmt::format("--ep: expected 1 to the ranks, or 0, found {}; choose another", ep));
  }
  options.ep = ep;
  if (!placement.empty()) {
    TRY_ASSIGN(options.placement, plan::ReadPlacement(placement));
  }
  for (const std::string& cut : cuts) TRY(plan::ParseCuts(cut, &options));
  return options;
}

Status LayoutFlags::CheckPlacement(const plan::Geometry& geometry, const plan::LayoutOptions& options) const {
  if (!options.placement) return {};
  const Result<plan::Layout> layout = plan::MakeLayout(geometry, options);
  plan::LayoutOptions without = options;
  without.placement.reset();
  without.ep = 0;
  if (layout.ok() || !plan::MakeLayout(geometry, without).ok()) return {};
  return MakeError(layout.error().code, fmt::format("{}: {}", placement, layout.error().message));
}

Result<std::string> LayoutFlags::Directory() const { return ModelDir(model); }

Result<engine::OpenedModel> LayoutFlags::Open() const {
  TRY_ASSIGN(const std::string dir, Directory());
  std::optional<checkpoint::DummyFormat> format;
  if (!dummy.empty()) {
    TRY_ASSIGN(format, checkpoint::ParseDummyFormat(dummy));
  }
  return engine::OpenModel(model, dir, format);
}

void LayoutFlags::AddDummy(CLI::App* app) {
  RefuseEmpty(app->add_option("--dummy-weights", dummy,
                              "bf16, fp8 or mxfp4: make weights up in that format; the model's config.json is enough"));
}

void SizeFlags::Add(CLI::App* app) {
  app->add_option("--max-model-len", max_context, "context in tokens; 0 takes the model's");
  app->add_option("--max-num-seqs", max_sequences, "sequences that run at once in a replica, 1 to 4096");
  app->add_option("--prefill-chunk", prefill_chunk, "prompt tokens of one sequence in one step");
  app->add_option("--prefill-budget", prefill_budget,
                  "prompt tokens of all sequences in a step with sequences that decode; 0: as many as make the step at "
                  "most twice as much work, by the model's arithmetic and bytes");
  app->add_option("--memory-fraction", memory_fraction,
                  "of the memory that the machine has available, for weights, caches and scratch of all ranks");
  app->add_option("--kv-tokens", kv_tokens,
                  "capacity of a replica's KV cache in tokens; 0: every sequence's context, as far as memory goes");
  app->add_option("--kv-cache-dtype", kv_cache_dtype,
                  "auto: keys and values as they were computed, float32; fp8: E4M3 with a scale for every token and KV "
                  "head, a quarter of the memory");
  app->add_option(
      "--snapshot-slots", snapshot_slots,
      "states of recurrent and sliding-window layers kept for the prefix cache; -1: two for each sequence that "
      "runs, as far as memory goes");
  asked_prefix_cache_ = app->add_option(
      "--prefix-cache", prefix_cache,
      "on: prompts that begin as earlier ones do are computed from where they part; off, as in every run that is "
      "recorded or takes its experts from a file");
}

Status SizeFlags::CheckPrefixCache(const engine::EngineOptions& options) const {
  const bool records = options.proof.on();
  if (!options.prefix_cache || asked_prefix_cache_->count() == 0 || (!records && options.routes.empty())) return {};
  return MakeError(
      Code::kUsage,
      fmt::format("--prefix-cache: expected off beside {}, found on; leave it out",
                  records ? "--proof, since a position that is found in the cache is computed and recorded "
                            "by nobody"
                          : "--routes, since what was forced on one request would reach another"));
}

Status SizeFlags::Fill(engine::EngineOptions* options) const {
  if (prefix_cache != "on" && prefix_cache != "off") {
    return MakeError(Code::kUsage,
                     fmt::format("--prefix-cache: expected on or off, found \"{}\"; choose one", Quote(prefix_cache)));
  }
  TRY_ASSIGN(options->kv_dtype, cache::ParseKvDtype(kv_cache_dtype));
  options->prefix_cache = prefix_cache == "on";
  options->max_context = max_context;
  options->max_sequences = max_sequences;
  options->prefill_chunk = prefill_chunk;
  options->prefill_budget = prefill_budget;
  options->kv_tokens = kv_tokens;
  options->snapshot_slots = snapshot_slots;
  options->memory_fraction = memory_fraction;
  return {};
}

void EngineFlags::Add(CLI::App* app) {
  layout.Add(app);
  sizes.Add(app);
  app->add_option("--launch", launch, "ranks as threads or as processes");
  app->add_option("--backend", backend, "cpu, or cuda: rank r runs on GPU r modulo their number");
  app->add_option("--transport", transport,
                  "between ranks on GPUs: peer, in memory of the GPUs; host; auto: peer where they reach each other");
  AddTuning(app, &tuning);
  app->add_option(
      "--numerics", numerics,
      "exact: the same bits for every layout; portable: and on every backend, without matrix units; fast: for the same "
      "layout only");
  app->add_option("--threads", threads, "threads of each rank; 0 shares out the cores");
  app->add_option("--rows", rows, "kernel rows by suffix: ref, avx2, avx512 or avx512vnni; the best one when empty");
  app->add_option("--force", force, "one kernel row, such as gemm=gemm/ref; commas or repeats")->take_all();
  app->add_option(
      "--fault", fault,
      "plant a fault that the proofs must catch: partial-bf16, rank-order, split-k, local-scale, fallback, "
      "hand-bf16, wrong-slot, weight-bit, router-ulp, local-topk, combine-order, split-kv, moved-map, "
      "other-split, sp-first, other-replica, die or hang, with :rank=N, and :site=N or :step=N where it has "
      "them, such as partial-bf16:rank=1:site=3");
  app->add_flag(
      "--compress-sums", compress_sums,
      "with --numerics fast: parts of sums over ranks travel in 6 bits a value, for slow links; logits change");
  app->add_flag("--strict", strict, "a saturated sum is an error instead of a notice");
  app->add_flag("--quiet,-q", quiet, "no notices and no progress");
}

Status AddForce(const std::vector<std::string>& texts, engine::EngineOptions* options) {
  TRY_ASSIGN(const std::vector<std::string> rows, ParseLists(texts, "--force"));
  for (const std::string& text : rows) {
    const std::vector<std::string> pair = Split(text, '=');
    if (pair.size() != 2) {
      return MakeError(Code::kUsage,
                       fmt::format("--force: expected FAMILY=ROW, found \"{}\"; see trivet doctor", Quote(text)));
    }
    if (options->kernels.force.emplace(pair[0], pair[1]).second) continue;
    return MakeError(Code::kUsage, fmt::format("--force: expected one row for each family, found two for {}; keep one",
                                               Quote(pair[0])));
  }
  return {};
}

void EngineFlags::AddRoutes(CLI::App* app) {
  RefuseEmpty(app->add_option("--routes", routes,
                              "safetensors file as `trivet routes export` writes it: its experts are chosen for the "
                              "tokens that it has, whatever the router would choose"));
}

Result<engine::EngineOptions> EngineFlags::Options() const {
  engine::EngineOptions options;
  TRY_ASSIGN(options.layout, layout.Options());
  TRY_ASSIGN(options.launch, engine::ParseLaunch(launch));
  TRY_ASSIGN(options.backend, ParseBackend(backend));
  TRY_ASSIGN(options.transport, comm::ParseTransport(transport));
  TRY_ASSIGN(options.tuning, comm::Tuning::Open(tuning));
  TRY(engine::SetNumerics(numerics, &options));
  options.kernels.rows = rows;
  TRY(AddForce(force, &options));
  if (!fault.empty()) {
    TRY_ASSIGN(options.fault, comm::ParseFault(fault));
  }
  TRY(sizes.Fill(&options));
  options.threads = threads;
  options.compress_sums = compress_sums;
  options.strict = strict;
  options.routes = routes;
  return options;
}

void ProofFlags::Add(CLI::App* app, const std::string& out) {
  app->add_option("--proof", level,
                  "what the run records of itself for `trivet verify`: off; digest: of every decision, site and logit; "
                  "rows: also the decisions and logits; full: also where every expert was computed");
  app->add_option("--proof-out" + out, dir, "new folder for what --proof records");
}

Status ProofFlags::Fill(const std::string& command, engine::EngineOptions* options) const {
  const std::optional<record::Level> parsed = record::ParseLevel(level);
  if (!parsed) {
    return MakeError(Code::kUsage, fmt::format("--proof: expected off, digest, rows or full, found \"{}\"; choose one",
                                               Quote(level)));
  }
  options->proof.level = *parsed;
  if (options->proof.on() == dir.empty()) {
    return MakeError(Code::kUsage, "--proof: expected a level and --proof-out DIR, found one of them; give both");
  }
  options->proof.dir = dir;
  options->proof.command = command;
  return {};
}

void SayForced(const EngineFlags& flags, const engine::Engine& engine) {
  const std::optional<model::ForcedCounts> forced = engine.forced();
  if (flags.quiet || !forced) return;
  std::fprintf(stderr, "routes: %ld decisions forced, %ld of them other than the router's own\n", forced->decisions,
               forced->other);
}

Result<std::string> ModelDir(const std::string& model) {
  return engine::ResolveModel(model, ProgramDir(), TRIVET_SOURCE_MODELS);
}

Result<std::unique_ptr<engine::OpenedModel>> OpenFor(const EngineFlags& flags) {
  TRY_ASSIGN(engine::OpenedModel model, flags.layout.Open());
  if (!flags.quiet) {
    for (const std::string& notice : model.notices) std::fprintf(stderr, "notice: %s\n", notice.c_str());
  }
  return std::make_unique<engine::OpenedModel>(std::move(model));
}

Result<Loaded> Load(const EngineFlags& flags, const engine::EngineOptions& options) {
  TRY_ASSIGN(std::unique_ptr<engine::OpenedModel> model, OpenFor(flags));
  return Load(flags, options, std::move(model));
}

Result<Loaded> Load(const EngineFlags& flags, const engine::EngineOptions& options,
                    std::unique_ptr<engine::OpenedModel> model, const std::function<void()>& meanwhile) {
  TRY(flags.sizes.CheckPrefixCache(options));
  Loaded loaded{std::move(model), nullptr};
  TRY(flags.layout.CheckPlacement(loaded.model->geometry, options.layout));
  ProgressBar bar(fmt::format("loading {}", loaded.model->name), !flags.quiet);
  const auto show = [&](int64_t done, int64_t total) {
    bar.Show(done, total);
    if (meanwhile) meanwhile();
  };
  TRY_ASSIGN(loaded.engine, engine::Engine::Start(*loaded.model, options, show));
  bar.Finish(" on rank 0");
  if (!flags.quiet && options.compress_sums) {
    std::fprintf(stderr, "notice: --compress-sums: parts of sums over ranks are rounded to 6 bits, so logits change\n");
  }
  if (!flags.quiet && !loaded.engine->detour().empty()) {
    std::fprintf(stderr, "notice: ranks exchange through the host: %s\n", loaded.engine->detour().c_str());
  }
  return loaded;
}

Result<std::string> ReadStandardInput() {
  constexpr size_t kMost = 64000000;
  std::string text;
  char buffer[1 << 16];
  size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, stdin)) > 0) {
    text.append(buffer, got);
    if (text.size() > kMost) {
      return MakeError(Code::kCapacity,
                       fmt::format("standard input: expected at most {} bytes, found more; shorten it", kMost));
    }
  }
  return text;
}

}  // namespace trivet::cli
