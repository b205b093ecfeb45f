// SPDX-License-Identifier: Apache-2.0
// How much memory the machine, or the control group that the process is in, can still give.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace trivet {

/// The least of what the kernel calls available and of what the limits of the process's control group and of those
/// above it leave; page cache that a group holds counts as free. Units: bytes.
///   root    what to read files below, for tests; "" is the machine
/// Errors:  kIo when /proc/meminfo does not say.
Result<int64_t> AvailableMemory(const std::string& root = "");

}  // namespace trivet
