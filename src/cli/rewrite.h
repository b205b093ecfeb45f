// SPDX-License-Identifier: Apache-2.0
// What commands share that write a model anew: source, destination, progress, summary.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/open_model.h"
#include "export/output_model.h"
#include "export/source.h"

namespace trivet::cli {

/// Flags of such commands.
struct RewriteFlags {
  std::string model, out;
  int64_t shard_bytes = 5'000'000'000;
  bool json = false, quiet = false;
  void Add(CLI::App* app);
  /// Errors:  those of engine::OpenModel.
  Result<engine::OpenedModel> Open() const;
  /// Prints notices, unless quiet.
  void Say(const std::vector<std::string>& notices) const;
};

/// The model as the module export takes it.
exporter::Source SourceOf(const engine::OpenedModel& model);

/// Writes the planned model with a progress bar.
///   summary  what the command has to say; receives "out", "bytes" and "files"
Status Write(const RewriteFlags& flags, const exporter::OutputModel& model, Json* summary);

}  // namespace trivet::cli
