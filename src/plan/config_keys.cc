// SPDX-License-Identifier: Apache-2.0
#include "plan/config_keys.h"

#include <fmt/format.h>

#include <cmath>

namespace trivet::plan {

Error InvalidKey(std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kInvalid,
                   fmt::format("{}: \"{}\": expected {}, found {}; correct the file", kConfig, key, expected, found));
}

Error UnsupportedKey(std::string_view key, std::string_view expected, std::string_view found) {
  return MakeError(Code::kUnsupported, fmt::format("{}: \"{}\": expected {}, found {}; use a model without it", kConfig,
                                                   key, expected, found));
}

bool Present(const Json& object, std::string_view key) {
  const Json* value = Find(object, key);
  return value != nullptr && !value->is_null();
}

Result<int64_t> InRange(std::string_view key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    return InvalidKey(key, fmt::format("{} to {}", low, high), fmt::format("{}", value));
  }
  return value;
}

Result<int64_t> NeedExtent(const Json& object, std::string_view key, int64_t high) {
  TRY_ASSIGN(const int64_t value, NeedInt(object, key, kConfig));
  return InRange(key, value, 1, high);
}

Result<int64_t> GetExtent(const Json& object, std::string_view key, int64_t high) {
  TRY_ASSIGN(const int64_t value, GetInt(object, key, 0, kConfig));
  return InRange(key, value, 0, high);
}

Result<double> PositiveDouble(const Json& object, std::string_view key, double fallback) {
  if (!Present(object, key) && fallback == 0) return InvalidKey(key, "a positive number", "none");
  TRY_ASSIGN(const double value, GetDouble(object, key, fallback, kConfig));
  if (!std::isfinite(value) || value <= 0) return InvalidKey(key, "a positive number", fmt::format("{}", value));
  return value;
}

std::string_view EitherKey(const Json& object, std::string_view key, std::string_view alias) {
  return !Present(object, key) && Present(object, alias) ? alias : key;
}

}  // namespace trivet::plan
