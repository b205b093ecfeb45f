// SPDX-License-Identifier: Apache-2.0
#include "base/backend.h"

#include <gtest/gtest.h>

namespace trivet {
namespace {

TEST(Backend, NamesAreParsedBack) {
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    EXPECT_EQ(ParseBackend(BackendName(backend)).value(), backend);
  }
  for (const char* name : {"", "CPU", "cuda:1", "rocm"}) {
    const Result<Backend> parsed = ParseBackend(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.error().code, Code::kUsage);
  }
}

}  // namespace
}  // namespace trivet
