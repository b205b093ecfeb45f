// SPDX-License-Identifier: Apache-2.0
// Opening a MODEL argument: configuration, geometry and tensor headers, no weight bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config_file.h"
#include "checkpoint/dummy.h"
#include "checkpoint/quant_config.h"
#include "plan/geometry.h"
#include "plan/shard_map.h"

namespace trivet::engine {

/// A model on disk, understood and checked.
struct OpenedModel {
  std::string name;  // as the user gave it
  checkpoint::ModelFiles files;
  plan::Geometry geometry;
  checkpoint::Checkpoint checkpoint;
  plan::SourceNames names;
  checkpoint::QuantConfig quant;
  std::vector<std::string> notices;  // what was found and does no harm
};

/// Directory of a MODEL argument: an existing path as it is, or the name of a model that comes with the program
/// ("demo"), looked for beside the program and where it was built.
///   program_dir   folder of the running program;  source_models: folder of models at build time
/// Errors:  kNotFound says what a MODEL can be.
Result<std::string> ResolveModel(const std::string& model, const std::string& program_dir,
                                 const std::string& source_models);

/// Reads config and headers of the model in `dir` and checks that every tensor the family needs is there in its exact
/// shape and in a dtype that can be loaded.
///   dummy  without a value, the checkpoint in `dir`; with one, weights are made up in that format and config.json is
///          all that `dir` needs
/// Errors:  those of the files; kInvalid or kNotFound names the first tensor that is wrong and how many more are.
Result<OpenedModel> OpenModel(const std::string& name, const std::string& dir,
                              const std::optional<checkpoint::DummyFormat>& dummy = {});

/// Takes end tokens that no text can have, since they are beyond the vocabulary, out of `files`.
///   vocab    of the model;  notices: gets a sentence that names them
void DropImpossibleStops(int64_t vocab, checkpoint::ModelFiles* files, std::vector<std::string>* notices);

/// Every defect of the tensors, one sentence each; empty when the model can be loaded.
std::vector<std::string> TensorDefects(const plan::Geometry& geometry, const plan::SourceNames& names,
                                       const checkpoint::Checkpoint& checkpoint, const checkpoint::QuantConfig& quant);

/// What a checkpoint holds besides, one sentence per kind.
struct ExtraTensors {
  std::vector<std::string> skipped;  // known parts that text models do without
  std::vector<std::string> unknown;
};
/// Finds them; weights that are missing or wrong do not count.
ExtraTensors FindExtraTensors(const plan::Geometry& geometry, const plan::SourceNames& names,
                              const checkpoint::Checkpoint& checkpoint, const checkpoint::QuantConfig& quant);

/// Columns of the largest block among the weights of products: Geometry::weight_block. Weights that are missing or
/// wrong do not count.
int64_t LargestBlock(const plan::Geometry& geometry, const plan::SourceNames& names,
                     const checkpoint::Checkpoint& checkpoint, const checkpoint::QuantConfig& quant);

}  // namespace trivet::engine
