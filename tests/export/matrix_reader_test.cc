// SPDX-License-Identifier: Apache-2.0
#include "export/matrix_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/writer.h"
#include "tests/io/temp_dir.h"

namespace trivet::exporter {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A checkpoint of one F32 tensor "t" of shape [2, 3, 4] with the values 0, 1, 2, ...
class Reader : public testing::Test {
 protected:
  checkpoint::Checkpoint Open(float last = 23) {
    std::vector<float> values(24);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    values.back() = last;
    const std::vector<checkpoint::TensorDecl> decls = {{"t", tensor::DType::kF32, {2, 3, 4}}};
    auto writer = checkpoint::SafetensorsWriter::Create(dir_.Path("model.safetensors"), decls, {});
    CHECK(writer.ok() && writer->Append(std::as_bytes(std::span(values))).ok() && writer->Finish().ok());
    std::vector<std::string> notices;
    Result<checkpoint::Checkpoint> opened = checkpoint::Checkpoint::Open(dir_.Path(), &notices);
    CHECK_MSG(opened.ok(), opened.error().message);
    return std::move(opened).value();
  }

  // All rows, and how many came at once.
  static std::vector<float> All(const checkpoint::Checkpoint& checkpoint, const MatrixView& view, int64_t band,
                                std::vector<size_t>* bands) {
    std::vector<float> all;
    const Status status = ReadBands(checkpoint, view, band, [&](int64_t row, std::span<const float> values) -> Status {
      EXPECT_EQ(static_cast<size_t>(row * view.cols), all.size());
      all.insert(all.end(), values.begin(), values.end());
      bands->push_back(values.size() / static_cast<size_t>(view.cols));
      return {};
    });
    CHECK_MSG(status.ok(), status.error().message);
    return all;
  }

  const TempDir dir_;
};

TEST_F(Reader, ReadsRowsInBands) {
  const checkpoint::Checkpoint checkpoint = Open();
  std::vector<size_t> bands;
  EXPECT_THAT(All(checkpoint, {checkpoint.Find("t"), 12, 3, 4, 4}, 2, &bands),
              ElementsAre(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23));
  EXPECT_THAT(bands, ElementsAre(2, 1));
}

TEST_F(Reader, SkipsBetweenRows) {
  const checkpoint::Checkpoint checkpoint = Open();
  std::vector<size_t> bands;
  EXPECT_THAT(All(checkpoint, {checkpoint.Find("t"), 1, 3, 2, 4}, 9, &bands), ElementsAre(1, 2, 5, 6, 9, 10));
  EXPECT_THAT(bands, ElementsAre(3));
}

TEST_F(Reader, TurnsMatricesRound) {
  const checkpoint::Checkpoint checkpoint = Open();
  std::vector<size_t> bands;
  EXPECT_THAT(All(checkpoint, {checkpoint.Find("t"), 12, 4, 3, 1, 4}, 3, &bands),
              ElementsAre(12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23));
  EXPECT_THAT(bands, ElementsAre(3, 1));
}

TEST_F(Reader, RefusesWhatIsNotFinite) {
  for (const float last : {INFINITY, NAN}) {
    const checkpoint::Checkpoint checkpoint = Open(last);
    const Status status = ReadBands(checkpoint, {checkpoint.Find("t"), 12, 3, 4, 4}, 3,
                                    [](int64_t, std::span<const float>) { return Status(); });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kInvalid);
    EXPECT_THAT(status.error().message, HasSubstr("t: expected finite weights"));
  }
}

TEST_F(Reader, PassesTheSinksErrorOn) {
  const checkpoint::Checkpoint checkpoint = Open();
  const Status status = ReadBands(checkpoint, {checkpoint.Find("t"), 0, 3, 4, 4}, 1, [](int64_t row, auto) -> Status {
    return row == 1 ? Status(MakeError(Code::kIo, "full")) : Status();
  });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "full");
}

}  // namespace
}  // namespace trivet::exporter
