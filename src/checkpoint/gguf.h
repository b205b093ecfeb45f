// SPDX-License-Identifier: Apache-2.0
// The header of a GGUF file: metadata and tensor infos. Every count and length is checked against what the file can
// hold before memory is asked for.
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
#include "checkpoint/tensor_info.h"
#include "io/file.h"

namespace trivet::checkpoint {

/// Whether a MODEL path names a GGUF file: by its name, or, since stores of models name files by their digests, by the
/// first four bytes of a regular file.
bool IsGguf(const std::string& path);

/// A key or tensor of the file at `path` that is understood and not supported.
Error GgufUnsupported(std::string_view path, std::string_view key, std::string_view expected, std::string_view found);

/// What a header says. Metadata values are integers, floats, booleans, strings and (nested) arrays of them; strings
/// inside arrays may be any bytes. `tensors` are in file order with row-major shapes, slowest extent first, and file =
/// 0.
struct GgufHeader {
  Json metadata = Json::object();
  std::vector<TensorInfo> tensors;
};

/// Fills a span with the bytes at an offset of the file.
using ByteSource = std::function<Status(int64_t offset, std::span<std::byte> dst)>;

/// Parses a header.
///   source      reads the file, which has file_bytes bytes; never asked beyond them
///   what        the file's name for messages
/// Errors:  kInvalid, with a message of its own for each defect; kUnsupported names a tensor whose type is not
/// supported, a
///          big-endian file or an old version; those of `source`.
Result<GgufHeader> ParseGguf(const ByteSource& source, int64_t file_bytes, std::string_view what);

/// A file, its length when the header was read, and the header.
struct GgufFile {
  io::File file;
  int64_t file_bytes = 0;
  GgufHeader header;
};

/// Opens a file and reads its header, no tensor.  Errors: those of io::File and ParseGguf.
Result<GgufFile> OpenGguf(const std::string& path);

/// Names of all files of a model that is split, the first included; just `path` when it is not.
///   header   of the first file, `path`
/// Errors:  kInvalid when the file is not the first of its split, or its name does not follow from the split's count.
Result<std::vector<std::string>> GgufSplitFiles(const std::string& path, const GgufHeader& header);

}  // namespace trivet::checkpoint
