// SPDX-License-Identifier: Apache-2.0
// CHECK: broken invariants abort the process with position and values. Never used on input.
#pragma once

#include <string>

namespace trivet {

/// Prints the failed condition to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace trivet

/// Aborts when `condition` is false; always compiled in.
#define CHECK(condition)                               \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::trivet::CheckFailed(__FILE__, __LINE__, #condition, std::string()))

/// CHECK with a text that shows the values.
#define CHECK_MSG(condition, detail)                   \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::trivet::CheckFailed(__FILE__, __LINE__, #condition, (detail)))
