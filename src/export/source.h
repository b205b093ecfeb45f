// SPDX-License-Identifier: Apache-2.0
// The model that a command rewrites. The module is called `export` and its namespace `exporter`, because the former is
// a word of C++.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config_file.h"
#include "plan/geometry.h"
#include "plan/source_names.h"

namespace trivet::exporter {

/// An opened model whose tensors were checked against its geometry. The parts outlive it.
struct Source {
  const checkpoint::ModelFiles& files;
  const checkpoint::Checkpoint& checkpoint;
  const plan::Geometry& geometry;
  const plan::SourceNames& names;
};

/// Whether the model can be rewritten: a directory in Hugging Face form whose weights are BF16, F16 or F32.
/// Errors:  kUnsupported names what it is instead, and the first tensor that shows it.
Status CheckRewritable(const Source& source);

}  // namespace trivet::exporter
