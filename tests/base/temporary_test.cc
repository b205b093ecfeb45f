// SPDX-License-Identifier: Apache-2.0
#include "base/temporary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace trivet {
namespace {

TEST(TemporaryPath, IsBesideTheFileAndNamesTheProcess) {
  const std::string path = TemporaryPath("folder/name");
  EXPECT_THAT(path, testing::StartsWith("folder/name."));
  EXPECT_THAT(path, testing::HasSubstr(std::to_string(::getpid())));
  EXPECT_THAT(path, testing::EndsWith(".tmp"));
}

}  // namespace
}  // namespace trivet
