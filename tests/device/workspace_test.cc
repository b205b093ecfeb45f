// SPDX-License-Identifier: Apache-2.0
#include "device/workspace.h"

#include <gtest/gtest.h>

namespace trivet::device {
namespace {

Workspace Make(int64_t bytes) { return Workspace(std::move(Buffer::Make(Device(), bytes, "test")).value()); }

TEST(Workspace, PiecesAreAlignedAndApart) {
  Workspace workspace = Make(1024);
  const std::span<char> one = workspace.Take<char>(1);
  const std::span<double> three = workspace.Take<double>(3);
  const std::span<float> none = workspace.Take<float>(0);
  const std::span<float> rest = workspace.Take<float>(224);  // 1024 - 64 - 64 bytes
  EXPECT_EQ(one.size(), 1U);
  EXPECT_EQ(three.size(), 3U);
  EXPECT_TRUE(none.empty());
  for (const void* data :
       {static_cast<void*>(one.data()), static_cast<void*>(three.data()), static_cast<void*>(rest.data())}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
  }
  EXPECT_EQ(reinterpret_cast<char*>(three.data()) - one.data(), 64);
  EXPECT_EQ(reinterpret_cast<char*>(rest.data()) - one.data(), 128);
}

TEST(Workspace, AFrameGivesBackWhatWasTakenInIt) {
  Workspace workspace = Make(4096);
  const float* outer = workspace.Take<float>(10).data();
  const float* inner = nullptr;
  {
    const Workspace::Frame frame(&workspace);
    inner = workspace.Take<float>(100).data();
    {
      const Workspace::Frame nested(&workspace);
      workspace.Take<float>(500);
    }
    EXPECT_EQ(workspace.Take<float>(1).data(), inner + 112);
  }
  EXPECT_NE(inner, outer);
  EXPECT_EQ(workspace.Take<float>(1).data(), inner);
}

TEST(WorkspaceDeathTest, RunningOutAborts) {
  Workspace workspace = Make(128);
  workspace.Take<char>(65);
  EXPECT_DEATH(workspace.Take<char>(1), "CHECK");
}

}  // namespace
}  // namespace trivet::device
