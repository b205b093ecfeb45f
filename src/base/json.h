// SPDX-License-Identifier: Apache-2.0
// The one door to JSON: parsing with limits, and typed access that returns errors instead of throwing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trivet {

/// Keys keep their order. Look-up by key is linear in the object's size: iterate large objects.
using Json = nlohmann::ordered_json;

/// Bounds on untrusted text.
struct JsonLimits {
  int64_t max_bytes = int64_t{256} << 20;
  int max_depth = 64;
};

/// Parses `text`; duplicate keys, invalid UTF-8, trailing text and excess depth are errors.
///   what     the object's name for messages, such as a path
/// Errors:  kInvalid, kCapacity.
Result<Json> ParseJson(std::string_view text, std::string_view what, const JsonLimits& limits = {});

/// Reads and parses a file.  Errors: kNotFound, kIo and those of ParseJson.
Result<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits = {});

/// Member `key` of `object`, or null when absent (or when `object` is no object).
const Json* Find(const Json& object, std::string_view key);

/// As Find, with a JSON null for a member that is absent.
const Json& Member(const Json& object, std::string_view key);

/// Whether a value is an integer of 64 bits; a larger one would wrap around.
bool IsInt64(const Json& value);

/// Typed members: absent gives `fallback`, a JSON null counts as absent, a wrong type is kInvalid.
///   what     the object's name for messages
Result<int64_t> GetInt(const Json& object, std::string_view key, int64_t fallback, std::string_view what);
Result<double> GetDouble(const Json& object, std::string_view key, double fallback, std::string_view what);
Result<bool> GetBool(const Json& object, std::string_view key, bool fallback, std::string_view what);
Result<std::string> GetString(const Json& object, std::string_view key, std::string fallback, std::string_view what);

/// As GetInt, and an absent key is kInvalid.
Result<int64_t> NeedInt(const Json& object, std::string_view key, std::string_view what);

/// Text of a value; `indent` < 0 means one line. Invalid UTF-8 in strings becomes U+FFFD.
std::string DumpJson(const Json& value, int indent = -1);

}  // namespace trivet
