// SPDX-License-Identifier: Apache-2.0
// Checkpoint: the tensors of a model on disk by name. Opening reads headers only; bytes are read on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_info.h"
#include "io/file.h"

namespace trivet::checkpoint {

/// An open checkpoint. Move-only, immutable after Open; any number of threads may read at once, so the ranks of a
/// process share one and the files are opened once.
class Checkpoint {
 public:
  /// Opens a directory that holds model.safetensors or model.safetensors.index.json, one *.safetensors file, or a
  /// *.gguf file, the first one if it is split.
  ///   notices  one sentence for each thing found that is odd and harmless is appended
  /// Errors:  kNotFound names the missing file, kInvalid the file and its defect, kIo.
  static Result<Checkpoint> Open(const std::string& path, std::vector<std::string>* notices);

  /// A checkpoint without files, whose tensors, each with a name of its own, are made up as they are read (dummy.h).
  static Checkpoint OfTensors(std::vector<TensorInfo> tensors);

  /// The tensor called `name`, or null. Logarithmic in their number.
  const TensorInfo* Find(std::string_view name) const;

  /// All tensors, sorted by name.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  /// Reads part of a tensor.
  ///   offset   from the tensor's first byte; offset + dst.size() lies within info.bytes
  /// Errors:  kInvalid when the file's size changed since its header was read, kIo.
  Status Read(const TensorInfo& info, int64_t offset, std::span<std::byte> dst) const;

  /// Sum of the tensors' sizes.
  int64_t total_bytes() const { return total_bytes_; }

  /// Metadata of a GGUF file (gguf.h); an empty object otherwise.
  const Json& metadata() const { return metadata_; }

  /// Replaces every tensor by others that lie in its bytes: gives names, or takes a stack of matrices apart.
  /// Errors:  kInvalid when two tensors get one name.
  Status Remap(const std::function<std::vector<TensorInfo>(const TensorInfo&)>& parts_of);

  /// Path of a file.
  ///   file     TensorInfo::file
  const std::string& FileName(int file) const;

 private:
  struct Source {
    io::File file;
    int64_t bytes;  // when its header was read
  };

  Status AddFile(const std::string& path);
  Status AddGguf(const std::string& path);
  Status AddShards(const std::string& dir, std::vector<std::string>* notices);
  Status KeepMapped(const ShardIndex& index, const std::string& index_path, std::vector<std::string>* notices);
  void Seal();

  std::vector<Source> sources_;
  std::vector<TensorInfo> tensors_;
  Json metadata_ = Json::object();
  int64_t total_bytes_ = 0;
};

}  // namespace trivet::checkpoint
