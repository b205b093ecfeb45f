// SPDX-License-Identifier: Apache-2.0
// A model with its large matrices in FP8 or MXFP4, in the forms that other loaders read (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "export/output_model.h"
#include "export/source.h"

namespace trivet::exporter {

/// What weights become.
enum class QuantFormat { kFp8, kMxfp4 };

/// Parses "fp8" or "mxfp4".  Errors: kUsage.
Result<QuantFormat> ParseQuantFormat(const std::string& word);

/// What to quantise, and on which threads, which outlive the writing.
struct QuantizeOptions {
  QuantFormat format = QuantFormat::kMxfp4;
  bool head = false;  // the head, too
  ThreadPool* pool = nullptr;
};

/// A plan and what it does.
struct QuantizePlan {
  OutputModel model;
  int64_t quantised = 0;     // matrices, every expert's counted
  int64_t kept = 0;          // tensors that stay as they are
  int64_t source_bytes = 0;  // of all tensors
};

/// Plans the quantised form of a model; nothing is read or written. Routers, gates, embeddings, norms, biases,
/// convolutions and the small projections of delta nets stay, and so do tensors that the geometry does not know.
/// Stacked experts are written one by one, except those of gpt_oss form, which have a packed form of their own.
/// Errors:  kUnsupported for a source that is quantised or no directory, a width that the format cannot block, or
///          experts that have no form in it; kUsage for a head that is the embedding.
Result<QuantizePlan> PlanQuantize(const Source& source, const QuantizeOptions& options);

}  // namespace trivet::exporter
