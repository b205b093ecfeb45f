// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <vector>

#include "base/str.h"
#include "tests/io/temp_dir.h"

namespace trivet::io {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(File, ReadsAtPositions) {
  const TempDir dir;
  dir.Write("a", "0123456789");
  auto file = File::Open(dir.Path("a"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->Size().value(), 10);
  std::string text(4, '\0');
  ASSERT_TRUE(file->ReadAt(3, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(text, "3456");
  EXPECT_TRUE(file->ReadAt(10, {}).ok());
}

TEST(File, ShortFileNamesPathOffsetExpectedAndFound) {
  const TempDir dir;
  dir.Write("a", "0123456789");
  auto file = File::Open(dir.Path("a"));
  std::vector<std::byte> bytes(7);
  const Status status = file->ReadAt(8, bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kInvalid);
  EXPECT_THAT(status.error().message, HasSubstr(dir.Path("a") + ": expected 7 bytes at offset 8, found 2"));
}

TEST(File, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  EXPECT_EQ(File::Open(dir.Path("absent")).error().code, Code::kNotFound);
  EXPECT_THAT(File::Open(dir.Path()).error().message, HasSubstr("found a directory"));
  ASSERT_EQ(::mkfifo(dir.Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(File::Open(dir.Path("fifo")).error().message, HasSubstr("found a device or pipe"));
}

TEST(File, MovedFileStaysOpen) {
  const TempDir dir;
  dir.Write("a", "x");
  dir.Write("b", "yz");
  File a = File::Open(dir.Path("a")).value();
  File b = File::Open(dir.Path("b")).value();
  a = std::move(b);
  EXPECT_EQ(a.path(), dir.Path("b"));
  EXPECT_EQ(a.Size().value(), 2);
}

TEST(FileWriter, CommitsTheWholeFile) {
  const TempDir dir;
  auto writer = FileWriter::Create(dir.Path("out"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append(Bytes("one ")).ok());
  EXPECT_FALSE(fs::exists(dir.Path("out")));
  ASSERT_TRUE(writer->Append(Bytes("two")).ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(ReadTextFile(dir.Path("out"), 100).value(), "one two");
  EXPECT_EQ(dir.Count(), 1);
}

TEST(FileWriter, LeavesTheOldFileWhenAbandoned) {
  const TempDir dir;
  dir.Write("out", "old");
  {
    FileWriter writer = FileWriter::Create(dir.Path("out")).value();
    FileWriter moved = std::move(writer);
    ASSERT_TRUE(moved.Append(Bytes("new")).ok());
    EXPECT_EQ(dir.Count(), 2);
  }
  EXPECT_EQ(ReadTextFile(dir.Path("out"), 100).value(), "old");
  EXPECT_EQ(dir.Count(), 1);
}

TEST(FileWriter, NamesThePathItCannotCreate) {
  const TempDir dir;
  const auto writer = FileWriter::Create(dir.Path("absent/out"));
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, Code::kIo);
  EXPECT_THAT(writer.error().message, HasSubstr(dir.Path("absent/out")));
}

}  // namespace
}  // namespace trivet::io
