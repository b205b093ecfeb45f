// SPDX-License-Identifier: Apache-2.0
// Writing a model directory that other loaders read: safetensors files with an index, config.json, and the other files
// of the source byte for byte. The config comes last, so that what is half written is no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"

namespace trivet::exporter {

/// Takes the next bytes of a tensor.
using Sink = std::function<Status(std::span<const std::byte>)>;

/// A tensor to be written, and what makes its bytes: `produce` gives the sink exactly as many as declared, in order.
struct OutputTensor {
  checkpoint::TensorDecl decl;
  std::function<Status(const Sink& sink)> produce;
};

/// A tensor that is a copy of one of `checkpoint`, which outlives it.
OutputTensor CopyOf(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info);

/// A model to be written.
struct OutputModel {
  std::vector<OutputTensor> tensors;  // in model order, which decides the files they come to
  Json config;                        // config.json
  std::string source_dir;             // whose other files are copied
};

/// Bytes of one staging buffer; a row of a matrix, or a band of rows that share scales, may be longer.
inline constexpr int64_t kStagingBytes = int64_t{4} << 20;

/// How to write it.
struct OutputOptions {
  int64_t shard_bytes = 5'000'000'000;                    // most of one file, unless a tensor alone is larger
  std::function<void(int64_t done, int64_t total)> show;  // called after every piece; may be empty.  Units: bytes
};

/// What was written.
struct OutputFiles {
  std::vector<std::string> weights;  // names of safetensors files
  std::vector<std::string> copied;   // names of files that are as they were
  int64_t tensor_bytes = 0;
};

/// Bytes of all tensors.  Errors: those of checkpoint::TensorBytes.
Result<int64_t> TensorBytes(const OutputModel& model);

/// Writes the model to `dir`, a folder that is empty or does not exist yet. Weights are streamed. After an error the
/// folder is as it was.
/// Errors:  kUsage when the folder holds something; kIo, for too little space before anything is written; those of the
///          tensors.
Result<OutputFiles> WriteModel(const OutputModel& model, const std::string& dir, const OutputOptions& options);

}  // namespace trivet::exporter
