// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/str.h"
#include "checkpoint/dummy.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"

namespace trivet::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
// The largest published indexes are about 10 MB.
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;

bool NameLess(const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; }

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

Result<Checkpoint> Checkpoint::Open(const std::string& path, std::vector<std::string>* notices) {
  Checkpoint checkpoint;
  std::error_code error;
  const fs::path dir(path);
  if (!fs::is_directory(dir, error)) {
    TRY(IsGguf(path) ? checkpoint.AddGguf(path) : checkpoint.AddFile(path));
    checkpoint.Seal();
  } else if (Exists(dir / kSingleFile)) {
    if (Exists(dir / kIndexFile)) {
      notices->push_back(
          fmt::format("{}: found {} and {}; the first is used, as transformers does", path, kSingleFile, kIndexFile));
    }
    TRY(checkpoint.AddFile(dir / kSingleFile));
    checkpoint.Seal();
  } else if (Exists(dir / kIndexFile)) {
    TRY(checkpoint.AddShards(path, notices));
  } else {
    return MakeError(Code::kNotFound, fmt::format("{}: expected {} or {}, found neither; give a directory with "
                                                  "safetensors weights",
                                                  path, kSingleFile, kIndexFile));
  }
  return checkpoint;
}

// Appends a file and all its tensors.
Status Checkpoint::AddFile(const std::string& path) {
  TRY_ASSIGN(SafetensorsFile opened, OpenSafetensors(path));
  for (TensorInfo& info : opened.header.tensors) {
    info.file = static_cast<int>(sources_.size());
    tensors_.push_back(std::move(info));
  }
  sources_.push_back({std::move(opened.file), opened.file_bytes});
  return {};
}

// Appends a GGUF file, or all files of a split whose first it is.
Status Checkpoint::AddGguf(const std::string& path) {
  TRY_ASSIGN(GgufFile first, OpenGguf(path));
  TRY_ASSIGN(const std::vector<std::string> files, GgufSplitFiles(path, first.header));
  metadata_ = std::move(first.header.metadata);
  TRY_ASSIGN(const int64_t expected, GetInt(metadata_, "split.tensors.count", -1, path));
  std::set<std::string> names;
  for (size_t i = 0; i < files.size(); ++i) {
    if (i > 0) {
      TRY_ASSIGN(first, OpenGguf(files[i]));
      TRY_ASSIGN(const int64_t number, GetInt(first.header.metadata, "split.no", -1, files[i]));
      if (number != static_cast<int64_t>(i)) {
        return MakeError(Code::kInvalid,
                         fmt::format("{}: expected split.no {}, found {}; fetch the files again, from one "
                                     "revision",
                                     files[i], i, number));
      }
    }
    for (TensorInfo& info : first.header.tensors) {
      if (!names.insert(info.name).second) {
        return MakeError(Code::kInvalid,
                         fmt::format("{}: expected every tensor in one file, found \"{}\" again; fetch the "
                                     "files again, from one revision",
                                     files[i], Quote(info.name)));
      }
      info.file = static_cast<int>(sources_.size());
      tensors_.push_back(std::move(info));
    }
    sources_.push_back({std::move(first.file), first.file_bytes});
  }
  if (files.size() > 1 && expected >= 0 && expected != static_cast<int64_t>(tensors_.size())) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected {} tensors in the split, found {}; fetch the files again, from "
                                 "one revision",
                                 path, expected, tensors_.size()));
  }
  return {};
}

Status Checkpoint::Remap(const std::function<std::vector<TensorInfo>(const TensorInfo&)>& parts_of) {
  for (const TensorInfo& info : std::exchange(tensors_, {})) {
    for (TensorInfo& part : parts_of(info)) {
      part.stored_name = info.name;
      tensors_.push_back(std::move(part));
    }
  }
  Seal();
  const auto twice = std::adjacent_find(tensors_.begin(), tensors_.end(),
                                        [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twice == tensors_.end()) return {};
  return MakeError(Code::kInvalid,
                   fmt::format("{}: expected one tensor that means {}, found two; convert the model again",
                               FileName(twice->file), Quote(twice->name)));
}

// Appends the shards of an index, with the tensors that the index assigns to the shard they are in.
Status Checkpoint::AddShards(const std::string& dir, std::vector<std::string>* notices) {
  const std::string index_path = fs::path(dir) / kIndexFile;
  TRY_ASSIGN(const std::string text, ReadTextFile(index_path, kMaxIndexBytes));
  TRY_ASSIGN(const ShardIndex index, ParseShardIndex(text, index_path));
  for (const std::string& shard : index.shards) {
    const std::string path = fs::path(dir) / shard;
    if (!Exists(path)) {
      return MakeError(Code::kNotFound,
                       fmt::format("{}: expected the shard \"{}\" beside it, found no such file; fetch "
                                   "the missing file",
                                   index_path, Quote(shard)));
    }
    TRY(AddFile(path));
  }
  TRY(KeepMapped(index, index_path, notices));
  Seal();
  if (index.total_size.has_value() && *index.total_size != static_cast<double>(total_bytes_)) {
    notices->push_back(
        fmt::format("{}: metadata.total_size says {:.0f} bytes, the tensors have {}; the tensors are "
                    "believed",
                    index_path, *index.total_size, total_bytes_));
  }
  return {};
}

// Drops tensors that are not in the shard their index names: another shard's copy is the model's.
Status Checkpoint::KeepMapped(const ShardIndex& index, const std::string& index_path,
                              std::vector<std::string>* notices) {
  const auto key = [](const TensorInfo& info) { return std::pair(std::string_view(info.name), info.file); };
  std::vector<TensorInfo> found = std::exchange(tensors_, {});
  std::sort(found.begin(), found.end(), [&](const TensorInfo& a, const TensorInfo& b) { return key(a) < key(b); });
  std::vector<std::string> dropped;
  auto next = found.begin();
  for (const auto& [name, shard] : index.weight_map) {
    const std::pair wanted(std::string_view(name), shard);
    for (; next != found.end() && key(*next) < wanted; ++next) dropped.push_back(next->name);
    if (next == found.end() || key(*next) != wanted) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected tensor \"{}\" in shard \"{}\", found no such tensor there; fetch the "
                                   "index and the shards again, from one revision",
                                   index_path, Quote(name), Quote(index.shards[static_cast<size_t>(shard)])));
    }
    tensors_.push_back(std::move(*next++));
  }
  for (; next != found.end(); ++next) dropped.push_back(next->name);
  if (!dropped.empty()) {
    notices->push_back(
        fmt::format("{}: {} tensors are in a shard where the index does not map them, the first is "
                    "\"{}\"; they are ignored",
                    index_path, dropped.size(), Quote(dropped.front())));
  }
  return {};
}

// Sorts and sums once all tensors are known.
void Checkpoint::Seal() {
  std::sort(tensors_.begin(), tensors_.end(), NameLess);
  total_bytes_ = 0;
  for (const TensorInfo& info : tensors_) total_bytes_ += info.bytes;
}

Checkpoint Checkpoint::OfTensors(std::vector<TensorInfo> tensors) {
  Checkpoint checkpoint;
  checkpoint.tensors_ = std::move(tensors);
  checkpoint.Seal();
  return checkpoint;
}

const std::string& Checkpoint::FileName(int file) const {
  static const std::string kNone = "made-up weights";
  return sources_.empty() ? kNone : sources_[static_cast<size_t>(file)].file.path();
}

const TensorInfo* Checkpoint::Find(std::string_view name) const {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const TensorInfo& info, std::string_view key) { return info.name < key; });
  return it == tensors_.end() || it->name != name ? nullptr : &*it;
}

Status Checkpoint::Read(const TensorInfo& info, int64_t offset, std::span<std::byte> dst) const {
  CHECK_MSG(offset >= 0 && offset <= info.bytes && static_cast<int64_t>(dst.size()) <= info.bytes - offset,
            fmt::format("{}: {} bytes at {} of {}", info.name, dst.size(), offset, info.bytes));
  if (sources_.empty()) {
    FillDummy(info, offset, dst);
    return {};
  }
  const Source& source = sources_[static_cast<size_t>(info.file)];
  // The header was checked against the size the file had then.
  TRY_ASSIGN(const int64_t bytes, source.file.Size());
  if (bytes != source.bytes) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected {} bytes as when it was opened, found {}; the file "
                                                 "changed, start again when it is complete",
                                                 source.file.path(), source.bytes, bytes));
  }
  return source.file.ReadAt(info.offset + offset, dst);
}

}  // namespace trivet::checkpoint
