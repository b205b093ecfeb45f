// SPDX-License-Identifier: Apache-2.0
#include "base/machine_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/str.h"
#include "tests/io/temp_dir.h"

namespace trivet {
namespace {

class MachineMemory : public testing::Test {
 protected:
  MachineMemory() { Write("/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 1 kB\nMemAvailable:    8000 kB\n"); }

  void Write(const std::string& path, const std::string& text) {
    const std::string whole = dir_.Path() + path;
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    ASSERT_TRUE(WriteTextFile(whole, text).ok());
  }
  int64_t Available() const { return AvailableMemory(dir_.Path()).value(); }

  const TempDir dir_;
};

TEST_F(MachineMemory, WithoutGroupsItIsTheMachines) { EXPECT_EQ(Available(), 8000 * 1024); }

TEST_F(MachineMemory, TheTightestGroupAboveTheProcessCounts) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "100\n");
  EXPECT_EQ(Available(), 8000 * 1024);
  Write("/sys/fs/cgroup/a/memory.max", "5000000\n");
  Write("/sys/fs/cgroup/a/memory.current", "3000000\n");
  EXPECT_EQ(Available(), 2000000);
  Write("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 1000000\n");
  EXPECT_EQ(Available(), 3000000) << "page cache goes first";
  Write("/sys/fs/cgroup/memory.max", "700\n");
  Write("/sys/fs/cgroup/memory.current", "900\n");
  EXPECT_EQ(Available(), 0);
}

TEST_F(MachineMemory, TheFirstVersionOfGroups) {
  Write("/proc/self/cgroup", "9:cpu:/x\n7:memory:/x\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "6000000");
  Write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "2000000");
  EXPECT_EQ(Available(), 4000000);
}

TEST_F(MachineMemory, AMachineThatDoesNotSayIsAnError) {
  Write("/proc/meminfo", "MemTotal: 9 kB\n");
  EXPECT_EQ(AvailableMemory(dir_.Path()).error().code, Code::kIo);
  EXPECT_GT(AvailableMemory().value(), 0);
}

}  // namespace
}  // namespace trivet
