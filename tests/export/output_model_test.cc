// SPDX-License-Identifier: Apache-2.0
#include "export/output_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/io/temp_dir.h"

namespace trivet::exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// A tensor of `count` bytes of one value.
OutputTensor Bytes(const std::string& name, int64_t count, int value) {
  return {{name, tensor::DType::kU8, {count}}, [count, value](const Sink& sink) -> Status {
            const std::vector<std::byte> piece(1, static_cast<std::byte>(value));
            for (int64_t i = 0; i < count; ++i) TRY(sink(piece));
            return {};
          }};
}

class Output : public testing::Test {
 protected:
  Output() {
    fs::create_directory(source_);
    fs::create_directory(fs::path(source_) / "folder");
    dir_.Write("source/config.json", "{}");
    dir_.Write("source/tokenizer.json", "tok\nens");
    dir_.Write("source/.hidden", "x");
    for (const char* weights : {"model.safetensors", "model.safetensors.index.json", "old.bin"}) {
      dir_.Write(std::string("source/") + weights, "x");
    }
    fs::create_symlink(fs::path(source_) / "tokenizer.json", fs::path(source_) / "link.txt");
  }
  OutputModel Model() const {
    return {{Bytes("a", 5, 1), Bytes("b", 6, 2), Bytes("c", 20, 3), Bytes("d", 1, 4)}, {{"key", 1.5}}, source_};
  }

  const TempDir dir_;
  const std::string source_ = dir_.Path("source"), out_ = dir_.Path("out");
};

TEST_F(Output, OneFileWithoutAnIndex) {
  OutputOptions options;
  std::vector<int64_t> shown;
  options.show = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 32);
    shown.push_back(done);
  };
  const Result<OutputFiles> files = WriteModel(Model(), out_, options);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_THAT(files->weights, ElementsAre("model.safetensors"));
  EXPECT_THAT(files->copied, ElementsAre("link.txt", "tokenizer.json"));
  EXPECT_EQ(files->tensor_bytes, 32);
  EXPECT_EQ(shown.size(), 32U);
  EXPECT_EQ(shown.back(), 32);
  EXPECT_EQ(*ReadTextFile(out_ + "/tokenizer.json", 100), "tok\nens");
  EXPECT_EQ(*ReadTextFile(out_ + "/link.txt", 100), "tok\nens");
  EXPECT_EQ((*ReadJsonFile(out_ + "/config.json"))["key"], 1.5);
  EXPECT_FALSE(fs::exists(out_ + "/model.safetensors.index.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(out_), fs::directory_iterator()), 4);
}

TEST_F(Output, ManyFilesWithAnIndexThatReadersTake) {
  OutputOptions options;
  options.shard_bytes = 11;
  fs::create_directory(out_);  // an empty folder will do
  const Result<OutputFiles> files = WriteModel(Model(), out_, options);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_THAT(files->weights, ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                          "model-00003-of-00003.safetensors"));
  std::vector<std::string> notices;
  const Result<checkpoint::Checkpoint> opened = checkpoint::Checkpoint::Open(out_, &notices);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(notices, testing::IsEmpty());
  EXPECT_EQ(opened->total_bytes(), 32);
  for (const auto& [name, size, value] : {std::tuple{"a", 5, 1}, {"b", 6, 2}, {"c", 20, 3}, {"d", 1, 4}}) {
    const checkpoint::TensorInfo* info = opened->Find(name);
    ASSERT_NE(info, nullptr) << name;
    std::vector<std::byte> bytes(static_cast<size_t>(size));
    ASSERT_TRUE(opened->Read(*info, 0, bytes).ok());
    EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size(), static_cast<std::byte>(value)));
  }
}

TEST_F(Output, CopiesAreTheBytesOfTheSource) {
  ASSERT_TRUE(WriteModel(Model(), out_, {}).ok());
  std::vector<std::string> notices;
  const Result<checkpoint::Checkpoint> opened = checkpoint::Checkpoint::Open(out_, &notices);
  ASSERT_TRUE(opened.ok());
  OutputModel copy = {{}, Json::object(), source_};
  for (const checkpoint::TensorInfo& info : opened->tensors()) copy.tensors.push_back(CopyOf(*opened, info));
  ASSERT_TRUE(WriteModel(copy, dir_.Path("copy"), {}).ok());
  EXPECT_NE(*ReadTextFile(out_ + "/model.safetensors", 1000), "");
  const Result<checkpoint::Checkpoint> again = checkpoint::Checkpoint::Open(dir_.Path("copy"), &notices);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*ReadTextFile(out_ + "/model.safetensors", 1000), *ReadTextFile(dir_.Path("copy/model.safetensors"), 1000));
}

TEST_F(Output, AFolderWithFilesIsLeftAlone) {
  const Result<OutputFiles> files = WriteModel(Model(), source_, {});
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, Code::kUsage);
  EXPECT_THAT(files.error().message, HasSubstr("empty or does not exist"));
  EXPECT_EQ(*ReadTextFile(source_ + "/config.json", 100), "{}");
  const Result<OutputFiles> file = WriteModel(Model(), source_ + "/config.json", {});
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, Code::kUsage);
  const Result<OutputFiles> nowhere = WriteModel(Model(), dir_.Path("no/such"), {});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, Code::kIo);
}

TEST_F(Output, NothingIsLeftAfterAnError) {
  OutputModel model = Model();
  model.tensors.push_back({{"e", tensor::DType::kU8, {9}}, [](const Sink& sink) -> Status {
                             TRY(sink(std::vector<std::byte>(4)));
                             return MakeError(Code::kInvalid, "damaged");
                           }});
  OutputOptions options;
  options.shard_bytes = 11;
  for (const bool exists : {false, true}) {
    if (exists) fs::create_directory(out_);
    const Result<OutputFiles> files = WriteModel(model, out_, options);
    ASSERT_FALSE(files.ok());
    EXPECT_EQ(files.error().message, "damaged");
    EXPECT_EQ(fs::exists(out_), exists);
    EXPECT_TRUE(!exists || fs::is_empty(out_));
  }
}

TEST_F(Output, TooLittleSpaceIsFoundBeforeAnythingIsWritten) {
  OutputModel model = Model();
  model.tensors.push_back({{"huge", tensor::DType::kU8, {int64_t{1} << 59}}, [](const Sink&) -> Status {
                             ADD_FAILURE() << "written";
                             return {};
                           }});
  const Result<OutputFiles> files = WriteModel(model, out_, {});
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, Code::kIo);
  EXPECT_THAT(files.error().message, HasSubstr("of free space"));
  EXPECT_FALSE(fs::exists(out_));
}

// A write that fails in the middle, as on a full disk: here files may not grow beyond a limit.
TEST_F(Output, AWriteThatFailsLeavesNothing) {
  const int child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {100000, 100000};
    OutputModel model = Model();
    model.tensors.push_back({{"large", tensor::DType::kU8, {200000}},
                             [](const Sink& sink) -> Status { return sink(std::vector<std::byte>(200000)); }});
    OutputOptions options;
    options.shard_bytes = 100;
    const bool limited = ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
    const Result<OutputFiles> files = WriteModel(model, out_, options);
    ::_exit(limited && !files.ok() && files.error().code == Code::kIo ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(out_));
}

}  // namespace
}  // namespace trivet::exporter
