// SPDX-License-Identifier: Apache-2.0
// Where files stand while they are written.
#pragma once

#include <string>

namespace trivet {

/// Where this process writes a file before it takes the name `path`: beside it.
std::string TemporaryPath(const std::string& path);

}  // namespace trivet
