// SPDX-License-Identifier: Apache-2.0
#include "proof/run_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "base/str.h"

namespace trivet::proof {
namespace {

constexpr const char* kSeal = "seal.json";
constexpr const char* kComplete = "COMPLETE";
constexpr int64_t kMostBytes = int64_t{1} << 34;  // of one file

Error Refused(const std::string& path, const char* what) {
  return MakeError(Code::kIo, fmt::format("{}: expected to {}, found: {}; check permissions and space", path, what,
                                          std::strerror(errno)));
}

// Writes a file that must not be there yet.
Status WriteNew(const std::string& path, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return Refused(path, "create it");
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const Error error = Refused(path, "write it");
      ::close(fd);
      return error;
    }
    done += static_cast<size_t>(wrote);
  }
  if (::close(fd) != 0) return Refused(path, "write it");
  return {};
}

// What a seal says of a file.
Json SealedFile(size_t bytes, std::string sha256) { return {{"bytes", bytes}, {"sha256", std::move(sha256)}}; }

// The seal of files, as it says of each, and what says that it is complete.
Files SealOf(const Json& files) {
  const std::string seal = DumpJson(Json{{"schema", "trivet.seal.v1"}, {"files", files}}, 1) + "\n";
  return {{kSeal, seal}, {kComplete, Sha256Hex(seal) + "\n"}};
}

// Paths below `dir` of all files in it.
Result<std::vector<std::string>> PathsIn(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    return MakeError(Code::kNotFound, fmt::format("{}: expected the folder of a run, found none; check the path", dir));
  }
  std::vector<std::string> paths;
  fs::recursive_directory_iterator it(dir, error);
  while (!error && it != fs::recursive_directory_iterator()) {
    const fs::directory_entry& entry = *it;
    std::error_code ignored;
    if (!entry.is_directory(ignored) || entry.is_symlink(ignored)) {
      if (!entry.is_regular_file(ignored) || entry.is_symlink(ignored)) {
        return MakeError(Code::kInvalid, fmt::format("{}: expected regular files only, found something else; it is no "
                                                     "folder of a run",
                                                     entry.path().string()));
      }
      paths.push_back(entry.path().lexically_relative(dir).generic_string());
    }
    it.increment(error);
  }
  if (error) return MakeError(Code::kIo, fmt::format("{}: expected to list it, found: {}", dir, error.message()));
  return paths;
}

// What a seal says of the file at `path`.
Result<Json> ReadSealed(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Refused(path, "open it");
  Sha256 hash;
  size_t bytes = 0;
  std::array<std::byte, 1 << 16> buffer;
  ssize_t got = 0;
  while ((got = ::read(fd, buffer.data(), buffer.size())) > 0 || (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    hash.Update(std::span(buffer).first(static_cast<size_t>(got)));
    bytes += static_cast<size_t>(got);
  }
  const Error error = Refused(path, "read it");
  ::close(fd);
  if (got < 0) return error;
  return SealedFile(bytes, hash.Finish());
}

// One file against what the seal says of it.
Gate CheckFile(const Files& files, const std::string& path, const Json& sealed) {
  const auto found = files.find(path);
  if (found == files.end()) return Found(Verdict::kIncompleteArtifact, path + ": sealed, and gone", {{"file", path}});
  if (Member(sealed, "sha256") != Sha256Hex(found->second)) {
    return Found(Verdict::kCorruptArtifact, path + ": its bytes are not those that were sealed", {{"file", path}});
  }
  return std::nullopt;
}

}  // namespace

std::string RankPath(int64_t rank, const std::string& name) { return fmt::format("ranks/{:05}/{}", rank, name); }

Status MakeRunDir(const std::string& dir) {
  if (::mkdir(dir.c_str(), 0755) == 0) return {};
  if (errno != EEXIST) return Refused(dir, "make the folder");
  return MakeError(Code::kUsage,
                   fmt::format("{}: expected a place for a new run, found something there; choose another", dir));
}

Status WriteFiles(const std::string& dir, const Files& files) {
  for (const auto& [path, bytes] : files) {
    const std::filesystem::path full = std::filesystem::path(dir) / path;
    std::error_code error;
    std::filesystem::create_directories(full.parent_path(), error);
    if (error) {
      return MakeError(Code::kIo, fmt::format("{}: expected to make the folder, found: {}; check permissions",
                                              full.parent_path().string(), error.message()));
    }
    TRY(WriteNew(full.string(), bytes));
  }
  return {};
}

Result<Files> ReadRunDir(const std::string& dir) {
  TRY_ASSIGN(const std::vector<std::string> paths, PathsIn(dir));
  Files files;
  for (const std::string& path : paths) {
    TRY_ASSIGN(files[path], ReadTextFile(dir + "/" + path, kMostBytes));
  }
  return files;
}

void Seal(Files* files) {
  files->erase(kSeal);
  files->erase(kComplete);
  Json list = Json::object();
  for (const auto& [path, bytes] : *files) list[path] = SealedFile(bytes.size(), Sha256Hex(bytes));
  files->merge(SealOf(list));
}

Status SealRunDir(const std::string& dir) {
  TRY_ASSIGN(const std::vector<std::string> paths, PathsIn(dir));
  Json list = Json::object();
  for (const std::string& path : paths) {
    TRY_ASSIGN(list[path], ReadSealed(dir + "/" + path));
  }
  const Files seal = SealOf(list);
  TRY(WriteFiles(dir, {{kSeal, seal.at(kSeal)}}));
  return WriteFiles(dir, {{kComplete, seal.at(kComplete)}});
}

Gate CheckSeal(const Files& files) {
  for (const char* name : {kComplete, kSeal}) {
    if (files.contains(name)) continue;
    return Found(Verdict::kIncompleteArtifact, fmt::format("{}: missing; the run did not come to its end", name),
                 {{"file", name}});
  }
  const std::string& seal = files.at(kSeal);
  if (files.at(kComplete) != Sha256Hex(seal) + "\n") {
    return Found(Verdict::kCorruptArtifact, "seal.json: its bytes are not those that COMPLETE names",
                 {{"file", kSeal}});
  }
  const Result<Json> json = ParseJson(seal, kSeal);
  if (!json.ok() || Member(*json, "schema") != "trivet.seal.v1" || !Member(*json, "files").is_object()) {
    return Found(Verdict::kCorruptArtifact, "seal.json: not a seal", {{"file", kSeal}});
  }
  const Json& sealed = Member(*json, "files");
  size_t listed = 0;
  for (const auto& [path, entry] : sealed.items()) {
    if (Gate gate = CheckFile(files, path, entry)) return gate;
    ++listed;
  }
  if (listed + 2 == files.size()) return std::nullopt;
  for (const auto& [path, bytes] : files) {
    if (path == kSeal || path == kComplete || Find(sealed, path) != nullptr) continue;
    return Found(Verdict::kCorruptArtifact, path + ": not one of the files that were sealed", {{"file", path}});
  }
  return Found(Verdict::kCorruptArtifact, "seal.json: names a file twice", {{"file", kSeal}});
}

}  // namespace trivet::proof
