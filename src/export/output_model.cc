// SPDX-License-Identifier: Apache-2.0
#include "export/output_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "base/str.h"

namespace trivet::exporter {
namespace {

namespace fs = std::filesystem;

// Weights in any form, and what indexes them: the output has its own.
bool IsWeightFile(const fs::path& path) {
  constexpr std::array<std::string_view, 9> kWeights = {".safetensors", ".bin",     ".pt", ".pth", ".gguf",
                                                        ".h5",          ".msgpack", ".ot", ".onnx"};
  const std::string name = path.filename().string();
  return name.ends_with(".index.json") ||
         std::find(kWeights.begin(), kWeights.end(), path.extension().string()) != kWeights.end();
}

// Names of the regular files of a folder that are copied, sorted.
Result<std::vector<std::string>> OtherFiles(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    const bool wanted = entry.is_regular_file(ignored) && !IsWeightFile(entry.path()) && name[0] != '.';
    if (wanted && name != "config.json") names.push_back(name);
  }
  if (error) {
    return MakeError(Code::kIo,
                     fmt::format("{}: expected a readable folder, found: {}; check it", dir, error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The folder that is written: removes what it made unless it is kept.
class Folder {
 public:
  explicit Folder(std::string dir) : dir_(std::move(dir)) {}
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    if (kept_) return;
    std::error_code ignored;
    for (const std::string& name : names_) fs::remove(fs::path(dir_) / name, ignored);
    if (made_) fs::remove(dir_, ignored);
  }

  Status Make() {
    std::error_code error;
    if (fs::exists(fs::symlink_status(dir_, error))) {
      if (fs::is_directory(dir_, error) && fs::is_empty(dir_, error) && !error) return {};
      return MakeError(
          Code::kUsage,
          fmt::format("{}: expected a folder that is empty or does not exist yet, found {}; choose another "
                      "place or empty it",
                      dir_, fs::is_directory(dir_, error) ? "files in it" : "a file"));
    }
    made_ = fs::create_directory(dir_, error);
    if (error) {
      return MakeError(Code::kIo, fmt::format("{}: expected to create the folder, found: {}; check the path", dir_,
                                              error.message()));
    }
    return {};
  }
  // Too little room is found out before hours of work, not after.
  Status CheckSpace(int64_t bytes) const {
    std::error_code error;
    const fs::space_info space = fs::space(dir_, error);
    if (error || space.available >= static_cast<uintmax_t>(bytes)) return {};
    return MakeError(
        Code::kIo,
        fmt::format("{}: expected {} of free space, found {}; make room or choose another place", dir_,
                    HumanBytes(static_cast<double>(bytes)), HumanBytes(static_cast<double>(space.available))));
  }
  // The path of a file that is about to be made.
  std::string Add(const std::string& name) {
    names_.push_back(name);
    return (fs::path(dir_) / name).string();
  }
  void Keep() { kept_ = true; }

 private:
  const std::string dir_;
  std::vector<std::string> names_;
  bool made_ = false, kept_ = false;
};

using Shard = std::vector<const OutputTensor*>;

int64_t BytesOf(const OutputTensor& tensor) {
  const Result<int64_t> bytes = checkpoint::TensorBytes(tensor.decl.dtype, tensor.decl.shape, tensor.decl.name);
  CHECK(bytes.ok());  // TensorBytes(model) was asked first
  return *bytes;
}

// Tensors in order, as many a file as fit. Within a file the wider dtypes come first, which keeps all aligned.
std::vector<Shard> Shards(const OutputModel& model, int64_t shard_bytes) {
  std::vector<Shard> shards;
  int64_t room = 0;
  for (const OutputTensor& tensor : model.tensors) {
    const int64_t bytes = BytesOf(tensor);
    if (shards.empty() || bytes > room) {
      shards.emplace_back();
      room = shard_bytes;
    }
    shards.back().push_back(&tensor);
    room -= bytes;
  }
  for (Shard& shard : shards) {
    std::stable_sort(shard.begin(), shard.end(), [](const OutputTensor* a, const OutputTensor* b) {
      return tensor::DTypeBits(a->decl.dtype) > tensor::DTypeBits(b->decl.dtype);
    });
  }
  return shards;
}

// Counts bytes and shows them.
class Progress {
 public:
  Progress(const OutputOptions& options, int64_t total) : options_(options), total_(total) {}
  void Add(size_t bytes) {
    done_ += static_cast<int64_t>(bytes);
    if (options_.show) options_.show(done_, total_);
  }

 private:
  const OutputOptions& options_;
  const int64_t total_;
  int64_t done_ = 0;
};

Status WriteShard(const Shard& shard, const std::string& path, Progress* progress) {
  std::vector<checkpoint::TensorDecl> decls;
  for (const OutputTensor* tensor : shard) decls.push_back(tensor->decl);
  TRY_ASSIGN(checkpoint::SafetensorsWriter writer,
             checkpoint::SafetensorsWriter::Create(path, decls, {{"format", "pt"}}));
  for (const OutputTensor* tensor : shard) {
    const int64_t after = writer.remaining_bytes() - BytesOf(*tensor);
    TRY(tensor->produce([&](std::span<const std::byte> bytes) -> Status {
      TRY(writer.Append(bytes));
      progress->Add(bytes.size());
      return {};
    }));
    CHECK_MSG(writer.remaining_bytes() == after, tensor->decl.name);
  }
  return writer.Finish();
}

// The index's text. Json is not used: it looks up every key that is added.
std::string IndexText(const std::vector<Shard>& shards, const std::vector<std::string>& names, int64_t bytes) {
  std::vector<std::string> members;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const OutputTensor* tensor : shards[i]) {
      members.push_back(fmt::format("    {}: \"{}\"", DumpJson(tensor->decl.name), names[i]));
    }
  }
  std::sort(members.begin(), members.end());
  return fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{\n{}\n  }}\n}}\n", bytes,
                     fmt::join(members, ",\n"));
}

}  // namespace

OutputTensor CopyOf(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info) {
  return {{info.name, info.dtype, info.shape}, [&checkpoint, &info](const Sink& sink) -> Status {
            std::vector<std::byte> staging(static_cast<size_t>(std::min(info.bytes, kStagingBytes)));
            for (int64_t at = 0; at < info.bytes; at += kStagingBytes) {
              const auto piece =
                  std::span(staging).first(static_cast<size_t>(std::min(kStagingBytes, info.bytes - at)));
              TRY(checkpoint.Read(info, at, piece));
              TRY(sink(piece));
            }
            return {};
          }};
}

Result<int64_t> TensorBytes(const OutputModel& model) {
  int64_t sum = 0;
  for (const OutputTensor& tensor : model.tensors) {
    TRY_ASSIGN(const int64_t bytes, checkpoint::TensorBytes(tensor.decl.dtype, tensor.decl.shape, tensor.decl.name));
    sum += bytes;
  }
  return sum;
}

Result<OutputFiles> WriteModel(const OutputModel& model, const std::string& dir, const OutputOptions& options) {
  OutputFiles files;
  TRY_ASSIGN(files.tensor_bytes, TensorBytes(model));
  TRY_ASSIGN(files.copied, OtherFiles(model.source_dir));
  Folder folder(dir);
  TRY(folder.Make());
  TRY(folder.CheckSpace(files.tensor_bytes));
  const std::vector<Shard> shards = Shards(model, options.shard_bytes);
  Progress progress(options, files.tensor_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    files.weights.push_back(shards.size() == 1
                                ? "model.safetensors"
                                : fmt::format("model-{:05d}-of-{:05d}.safetensors", i + 1, shards.size()));
    TRY(WriteShard(shards[i], folder.Add(files.weights.back()), &progress));
  }
  for (const std::string& name : files.copied) {
    std::error_code error;
    fs::copy_file(fs::path(model.source_dir) / name, folder.Add(name), error);
    if (error) {
      return MakeError(Code::kIo, fmt::format("{}: expected to copy it to {}, found: {}; check permissions and space",
                                              name, dir, error.message()));
    }
  }
  if (shards.size() > 1) {
    TRY(WriteTextFile(folder.Add("model.safetensors.index.json"),
                      IndexText(shards, files.weights, files.tensor_bytes)));
  }
  TRY(WriteTextFile(folder.Add("config.json"), DumpJson(model.config, 2) + "\n"));
  folder.Keep();
  return files;
}

}  // namespace trivet::exporter
