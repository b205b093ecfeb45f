// SPDX-License-Identifier: Apache-2.0
// Small text functions: files as text, numbers from text, human-readable amounts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trivet {

/// The whole file as bytes.  Errors: kNotFound, kIo, kCapacity when longer than `max_bytes`.
Result<std::string> ReadTextFile(const std::string& path, int64_t max_bytes);

/// Where to write a file that is to be called `path`: the path itself, or what it links to.
/// Errors:  kUsage when something other than a regular file is there: a device or a folder is never replaced.
Result<std::string> WritablePath(const std::string& path);

/// Writes a file whole: to a temporary beside it, then renamed.  Errors: kIo.
Status WriteTextFile(const std::string& path, std::string_view text);

/// Decimal integer, the whole of `text`.  Errors: kUsage, with `what` naming the object.
Result<int64_t> ParseInt(std::string_view text, std::string_view what);

/// Bytes that "64G", "500 MB", "16GiB" or "1000" say, the whole of `text`: a whole number and a unit, of which k, M, G,
/// T, P and E are powers of 1000 and Ki to Ei powers of 1024, with or without a B and in any case. Nothing for what is
/// none, or more than 2^63 - 1.
std::optional<int64_t> ParseSize(std::string_view text);

/// Pieces between `separator`; an empty text gives no pieces.
std::vector<std::string> Split(std::string_view text, char separator);

/// Printable form for messages: control bytes as \xNN; of a text of more than `most` bytes the characters that fit, and
/// three dots.
std::string Quote(std::string_view text, size_t most = 200);

/// "27.1 MB" (powers of 1000).   Units: bytes.
std::string HumanBytes(double bytes);

/// Valid UTF-8 (no surrogates, no overlong forms, nothing beyond U+10FFFF).
bool IsUtf8(std::string_view text);

/// A copy with every maximal invalid subpart replaced by U+FFFD.
std::string RepairUtf8(std::string_view text);

}  // namespace trivet
