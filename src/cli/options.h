// SPDX-License-Identifier: Apache-2.0
// Flags that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/open_model.h"

namespace trivet::cli {

/// Makes an empty text a usage error, for an option that may be left out: a script's unset variable is no choice.
void RefuseEmpty(CLI::Option* option);

/// Adds an option that takes bytes as ParseSize reads them.  Errors: usage.
CLI::Option* AddSize(CLI::App* app, const std::string& name, int64_t* bytes, const std::string& description);

/// Makes what is no number a usage error that says so, for an option of a number; an integer is decimal.
void RefuseNoNumber(CLI::Option* option);

/// Flags about model and layout: what `plan` takes.
struct LayoutFlags {
  std::string model;
  int64_t ranks = 1;
  int64_t context = 1;
  std::string context_split = "contiguous";
  int64_t context_stretch = 0;
  bool sequence_parallel = false;
  int64_t stages = 1;
  std::vector<std::string> stage_layers;
  int64_t replicas = 1;
  int64_t pad_to = 0;
  std::vector<std::string> cuts;
  int64_t ep = 0;
  std::string placement;  // file of a map; empty: none
  std::string dummy;      // format of made-up weights; empty: those of the checkpoint
  void Add(CLI::App* app);
  /// --dummy-weights, for commands that need no text.
  void AddDummy(CLI::App* app);
  /// Errors: kUsage, and those of plan::ReadPlacement.
  Result<plan::LayoutOptions> Options() const;
  /// Whether the layout of `options` obeys the map that they hold.  Errors: those of plan::MakeLayout that there would
  /// not be without the map, with the name of its file.
  Status CheckPlacement(const plan::Geometry& geometry, const plan::LayoutOptions& options) const;
  /// Opens the model.  Errors: those of engine::OpenModel.
  Result<engine::OpenedModel> Open() const;
  /// The model's directory.  Errors: kNotFound.
  Result<std::string> Directory() const;
};

/// Flags about sizes: what `plan` takes besides.
struct SizeFlags {
  int64_t max_context = 0;
  int64_t max_sequences = 32;
  int64_t prefill_chunk = 512;
  int64_t prefill_budget = 0;
  int64_t kv_tokens = 0;
  int64_t snapshot_slots = -1;
  std::string kv_cache_dtype = "auto";
  double memory_fraction = 0.8;
  std::string prefix_cache = "off";
  void Add(CLI::App* app);
  /// Fills in the sizes.  Errors: kUsage.
  Status Fill(engine::EngineOptions* options) const;
  /// Refuses a prefix cache that the command line asks for and a run with these options cannot have; where it is only
  /// the command's default, such a run goes without.  Errors: kUsage.
  Status CheckPrefixCache(const engine::EngineOptions& options) const;

 private:
  CLI::Option* asked_prefix_cache_ = nullptr;
};

/// Flags about running: what commands that load take besides.
struct EngineFlags {
  LayoutFlags layout;
  SizeFlags sizes;
  std::string launch = "threads";
  std::string backend = "cpu";
  std::string transport = "auto";
  std::string tuning = "auto";
  std::string numerics = "exact";
  std::string rows;
  std::vector<std::string> force;
  std::string fault;
  int64_t threads = 0;
  bool compress_sums = false;
  bool strict = false;
  bool quiet = false;
  std::string routes;  // file of choices of experts that are forced; empty: none
  void Add(CLI::App* app);
  /// --routes, for commands that know which request has which number.
  void AddRoutes(CLI::App* app);
  /// Errors: kUsage.
  Result<engine::EngineOptions> Options() const;
};

/// Takes kernel rows by "FAMILY=ROW", commas between several.  Errors: kUsage.
Status AddForce(const std::vector<std::string>& texts, engine::EngineOptions* options);

/// Flags about what a run records of itself.
struct ProofFlags {
  std::string level = "off";
  std::string dir;
  /// Adds --proof, and --proof-out with the names in `out` besides.
  void Add(CLI::App* app, const std::string& out);
  /// Sets what is recorded, and what that asks of the engine.
  ///   command  that records
  /// Errors:  kUsage.
  Status Fill(const std::string& command, engine::EngineOptions* options) const;
};

/// A loaded model.
struct Loaded {
  std::unique_ptr<engine::OpenedModel> model;
  std::unique_ptr<engine::Engine> engine;
};

/// Opens the model of the flags, with notices on standard error unless quiet.
Result<std::unique_ptr<engine::OpenedModel>> OpenFor(const EngineFlags& flags);

/// Loads a model that OpenFor has opened, with notices and a progress bar on standard error unless quiet.
///   meanwhile  called now and then on this thread; may be empty
Result<Loaded> Load(const EngineFlags& flags, const engine::EngineOptions& options,
                    std::unique_ptr<engine::OpenedModel> model, const std::function<void()>& meanwhile = {});
/// Opens and loads.
Result<Loaded> Load(const EngineFlags& flags, const engine::EngineOptions& options);

/// Says on standard error what --routes forced, unless quiet or without it.
void SayForced(const EngineFlags& flags, const engine::Engine& engine);

/// Folder or file of the model of a MODEL argument: see engine::ResolveModel.
Result<std::string> ModelDir(const std::string& model);

/// Standard input, whole.  Errors: kCapacity beyond 64 MB.
Result<std::string> ReadStandardInput();

}  // namespace trivet::cli
