// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/str.h"
#include "base/temporary.h"

namespace trivet::io {
namespace {

// Linux transfers at most 0x7ffff000 bytes a call; smaller pieces cost nothing and keep counts in range.
constexpr size_t kMaxTransfer = size_t{1} << 30;

}  // namespace

Result<File> File::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO at this path must give an error, not a hang. It has no effect on regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo;
    return MakeError(
        code, fmt::format("{}: expected a readable file, found: {}; check the path", path, std::strerror(errno)));
  }
  File file(path, fd);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    return MakeError(Code::kIo,
                     fmt::format("{}: expected a readable file, found: {}; check it", path, std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected a regular file, found {}; check the path", path,
                                                 S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe"));
  }
  return file;
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<int64_t> File::Size() const {
  struct stat info;
  if (::fstat(fd_, &info) != 0) {
    return MakeError(Code::kIo,
                     fmt::format("{}: expected a readable file, found: {}; check it", path_, std::strerror(errno)));
  }
  return int64_t{info.st_size};
}

Status File::ReadAt(int64_t offset, std::span<std::byte> dst) const {
  CHECK_MSG(offset >= 0, fmt::format("{} at {}", path_, offset));
  size_t done = 0;
  while (done < dst.size()) {
    const size_t piece = std::min(dst.size() - done, kMaxTransfer);
    const ssize_t got = ::pread(fd_, dst.data() + done, piece, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return MakeError(Code::kIo, fmt::format("{}: expected {} bytes at offset {}, found: {}; check the disk", path_,
                                              dst.size(), offset, std::strerror(errno)));
    }
    if (got == 0) {
      return MakeError(Code::kInvalid, fmt::format("{}: expected {} bytes at offset {}, found {}; the file is cut "
                                                   "short, fetch it again",
                                                   path_, dst.size(), offset, done));
    }
    done += static_cast<size_t>(got);
  }
  return {};
}

Result<FileWriter> FileWriter::Create(const std::string& name) {
  TRY_ASSIGN(std::string path, WritablePath(name));
  std::string temporary = TemporaryPath(path);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    return MakeError(Code::kIo, fmt::format("{}: expected to create the file, found: {}; check the path", path,
                                            std::strerror(errno)));
  }
  return FileWriter(std::move(path), std::move(temporary), fd);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

FileWriter::~FileWriter() { Abandon(); }

void FileWriter::Abandon() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

Error FileWriter::Failure(const char* what) const {
  return MakeError(Code::kIo, fmt::format("{}: expected to {} the file, found: {}; check the path and the space left",
                                          path_, what, std::strerror(errno)));
}

Status FileWriter::Append(std::span<const std::byte> bytes) {
  CHECK_MSG(fd_ >= 0, path_);
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failure("write");
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

Status FileWriter::Commit() {
  CHECK_MSG(fd_ >= 0, path_);
  // Data before name: after a power cut the name must not point at missing blocks.
  if (::fsync(fd_) != 0) return Failure("flush");
  if (::close(std::exchange(fd_, -1)) != 0) return Failure("close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return Failure("rename");
  temporary_.clear();
  return {};
}

}  // namespace trivet::io
