// SPDX-License-Identifier: Apache-2.0
// Where tensors live and kernels run.
#pragma once

#include <string_view>

#include "base/result.h"

namespace trivet {

/// The processor, or an NVIDIA GPU.
enum class Backend { kCpu, kCuda };

/// "cpu" or "cuda".
const char* BackendName(Backend backend);

/// The inverse.  Errors: kUsage.
Result<Backend> ParseBackend(std::string_view name);

}  // namespace trivet
