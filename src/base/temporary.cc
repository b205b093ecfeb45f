// SPDX-License-Identifier: Apache-2.0
#include "base/temporary.h"

#include <fmt/format.h>
#include <unistd.h>

namespace trivet {

std::string TemporaryPath(const std::string& path) { return fmt::format("{}.{}.tmp", path, ::getpid()); }

}  // namespace trivet
