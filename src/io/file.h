// SPDX-License-Identifier: Apache-2.0
// Positioned reads of one file, and writing a large file so that it appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace trivet::io {

/// A file open for reading. Move-only. Reads are positioned, so one File may serve many threads.
class File {
 public:
  /// Opens a regular file.  Errors: kNotFound, kInvalid when it is no regular file, kIo.
  static Result<File> Open(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Current size.   Units: bytes.   Errors: kIo.
  Result<int64_t> Size() const;

  /// Fills `dst` with the bytes at `offset`.
  ///   offset   from the file's start, not negative
  /// Errors:  kInvalid when the file ends before `dst` is full, kIo.
  Status ReadAt(int64_t offset, std::span<std::byte> dst) const;

  const std::string& path() const { return path_; }

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
};

/// A file being written under a temporary name beside `path`; it takes the name on Commit. Move-only.
class FileWriter {
 public:
  /// Creates the temporary file.  Errors: kIo.
  static Result<FileWriter> Create(const std::string& path);

  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  /// Removes the temporary file unless Commit succeeded.
  ~FileWriter();

  /// Writes at the end.  Errors: kIo.
  Status Append(std::span<const std::byte> bytes);

  /// Flushes to the disk and gives the file its name, replacing a file of that name. Call once.  Errors: kIo.
  Status Commit();

  const std::string& path() const { return path_; }

 private:
  FileWriter(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  void Abandon();
  Error Failure(const char* what) const;

  std::string path_;
  std::string temporary_;  // empty once committed or moved from
  int fd_ = -1;
};

}  // namespace trivet::io
