// SPDX-License-Identifier: Apache-2.0
#include "base/backend.h"

#include <fmt/format.h>

#include "base/str.h"

namespace trivet {

const char* BackendName(Backend backend) { return backend == Backend::kCpu ? "cpu" : "cuda"; }

Result<Backend> ParseBackend(std::string_view name) {
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    if (name == BackendName(backend)) return backend;
  }
  return MakeError(Code::kUsage, fmt::format("--backend: expected cpu or cuda, found \"{}\"; choose one", Quote(name)));
}

}  // namespace trivet
