// SPDX-License-Identifier: Apache-2.0
#include "proof/record_file.h"

#include <gtest/gtest.h>

namespace trivet::proof {
namespace {

std::vector<record::RowRecord> TwoRows() { return {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}}; }

TEST(RecordFile, RecordsComeBack) {
  const std::string file = EncodeRecords<record::RowRecord>(RecordKind::kRows, TwoRows());
  EXPECT_EQ(file.size(), 40 + 2 * sizeof(record::RowRecord));
  const auto rows = DecodeRecords<record::RowRecord>(RecordKind::kRows, file, "rows.bin");
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[1].input, 9);
  const auto none = DecodeRecords<record::RowRecord>(
      RecordKind::kRows, EncodeRecords<record::RowRecord>(RecordKind::kRows, {}), "rows.bin");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

TEST(RecordFile, OtherFilesAreRefused) {
  const std::string file = EncodeRecords<record::RowRecord>(RecordKind::kRows, TwoRows());
  EXPECT_FALSE(DecodeRecords<record::RowRecord>(RecordKind::kBounds, file, "f").ok());
  EXPECT_FALSE(DecodeRecords<record::BoundRecord>(RecordKind::kRows, file, "f").ok());
  for (const size_t size : {size_t{0}, size_t{39}, file.size() - 1}) {
    EXPECT_FALSE(DecodeRecords<record::RowRecord>(RecordKind::kRows, file.substr(0, size), "f").ok()) << size;
  }
  for (size_t i = 0; i < 40; ++i) {
    std::string changed = file;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(DecodeRecords<record::RowRecord>(RecordKind::kRows, changed, "f").ok()) << i;
  }
}

TEST(RecordFile, RoutesAndLogitsComeBack) {
  Routes routes;
  routes.top_k = 2;
  routes.heads = {{5, 1, 0, 2, 0.5F, 0}, {6, 2, 1, 2, 0.25F, 0}};
  routes.slots = {{1, 0, 0.5F, 1, 1}, {2, 0, 0.5F, 1, 1}, {3, 0, 0.75F, 2, 2}, {0, 0, 0.25F, 1, 1}};
  const Result<Routes> back = DecodeRoutes(EncodeRoutes(routes), "routes.bin");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->heads[1].token, 6);
  EXPECT_EQ(back->Slots(1)[0].expert, 3);
  const LogitsRows logits = {{4, {1, 2, 3}}, {9, {4, 5, 6}}};
  const Result<LogitsRows> rows = DecodeLogits(EncodeLogits(logits), "logits.bin");
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(*rows, logits);
  // A token stands once: here two rows are of the same.
  std::string twice = EncodeLogits(logits);
  const size_t row = (twice.size() - 40) / 2;
  twice.replace(40 + row, 8, twice.substr(40, 8));
  EXPECT_FALSE(DecodeLogits(twice, "logits.bin").ok());
  // A row says how long it is, and is so long.
  std::string longer = EncodeLogits(logits);
  longer[40 + 8] = 4;
  EXPECT_FALSE(DecodeLogits(longer, "logits.bin").ok());
  EXPECT_FALSE(DecodeLogits(EncodeRoutes(routes), "logits.bin").ok());
  EXPECT_FALSE(DecodeRoutes(EncodeLogits(logits), "routes.bin").ok());
}

}  // namespace
}  // namespace trivet::proof
