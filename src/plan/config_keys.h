// SPDX-License-Identifier: Apache-2.0
// Reading keys of config.json with ranges, and the messages when that fails.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace trivet::plan {

/// The file's name in messages.
inline constexpr std::string_view kConfig = "config.json";

/// Bounds that no real model comes near and that keep every product in 64 bits.
inline constexpr int64_t kMaxExtent = int64_t{1} << 24;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 8192;
inline constexpr int64_t kMaxLayers = 4096;

/// A key with a value that cannot be right: kInvalid.
Error InvalidKey(std::string_view key, std::string_view expected, std::string_view found);

/// A key with a value that is not served: kUnsupported.
Error UnsupportedKey(std::string_view key, std::string_view expected, std::string_view found);

/// Whether `key` is there and not null.
bool Present(const Json& object, std::string_view key);

/// `value`, if it is within [low, high].  Errors: kInvalid.
Result<int64_t> InRange(std::string_view key, int64_t value, int64_t low, int64_t high);

/// An extent that must be present: 1 to `high`.  Errors: kInvalid.
Result<int64_t> NeedExtent(const Json& object, std::string_view key, int64_t high = kMaxExtent);

/// An extent that may be absent: 0 to `high`, 0 when absent.  Errors: kInvalid.
Result<int64_t> GetExtent(const Json& object, std::string_view key, int64_t high = kMaxExtent);

/// A positive finite number, `fallback` when absent.  Errors: kInvalid, also when a fallback of 0 is needed.
Result<double> PositiveDouble(const Json& object, std::string_view key, double fallback);

/// The first of two keys that is present, else the first.
std::string_view EitherKey(const Json& object, std::string_view key, std::string_view alias);

}  // namespace trivet::plan
