// SPDX-License-Identifier: Apache-2.0
// Where tensors live and kernels run.
#pragma once

namespace trivet {

/// The processor, or an NVIDIA GPU.
enum class Backend { kCpu, kCuda };

/// "cpu" or "cuda".
inline const char* BackendName(Backend backend) { return backend == Backend::kCpu ? "cpu" : "cuda"; }

}  // namespace trivet
