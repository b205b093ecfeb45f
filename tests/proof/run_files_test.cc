// SPDX-License-Identifier: Apache-2.0
#include "proof/run_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/str.h"
#include "tests/io/temp_dir.h"

namespace trivet::proof {
namespace {

Verdict VerdictOf(const Files& files) {
  const Gate gate = CheckSeal(files);
  return gate ? gate->verdict : Verdict::kPass;
}

Files Sealed() {
  Files files = {{"run.json", "{}"}, {RankPath(3, "rows.bin"), "abc"}};
  Seal(&files);
  return files;
}

TEST(RunFiles, RanksHaveFolders) { EXPECT_EQ(RankPath(3, "rows.bin"), "ranks/00003/rows.bin"); }

TEST(RunFiles, ASealHoldsAndBreaks) {
  EXPECT_EQ(VerdictOf(Sealed()), Verdict::kPass);
  for (const auto& [path, bytes] : Sealed()) {
    Files gone = Sealed(), changed = Sealed(), longer = Sealed();
    gone.erase(path);
    EXPECT_EQ(VerdictOf(gone), Verdict::kIncompleteArtifact) << path;
    changed[path][0] = 'X';
    EXPECT_EQ(VerdictOf(changed), Verdict::kCorruptArtifact) << path;
    longer[path] += "x";
    EXPECT_EQ(VerdictOf(longer), Verdict::kCorruptArtifact) << path;
  }
  Files more = Sealed();
  more["ranks/00004/rows.bin"] = "abc";
  EXPECT_EQ(VerdictOf(more), Verdict::kCorruptArtifact);
}

TEST(RunFiles, ARunIsWrittenOnceIntoANewFolder) {
  const TempDir dir;
  const std::string run = dir.Path("run");
  ASSERT_TRUE(MakeRunDir(run).ok());
  EXPECT_EQ(MakeRunDir(run).error().code, Code::kUsage);
  ASSERT_TRUE(WriteFiles(run, {{"run.json", "{}"}, {RankPath(0, "rows.bin"), std::string("a\0b", 3)}}).ok());
  EXPECT_EQ(WriteFiles(run, {{"run.json", "again"}}).error().code, Code::kIo);
  EXPECT_EQ(VerdictOf(ReadRunDir(run).value()), Verdict::kIncompleteArtifact) << "not sealed yet";
  ASSERT_TRUE(SealRunDir(run).ok());
  const Files files = ReadRunDir(run).value();
  EXPECT_EQ(files.at(RankPath(0, "rows.bin")).size(), 3U);
  EXPECT_EQ(VerdictOf(files), Verdict::kPass);
  EXPECT_FALSE(SealRunDir(run).ok()) << "a sealed run stays as it is";
  EXPECT_EQ(ReadRunDir(dir.Path("none")).error().code, Code::kNotFound);
  std::filesystem::create_symlink("/dev/zero", run + "/link");
  EXPECT_EQ(ReadRunDir(run).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace trivet::proof
