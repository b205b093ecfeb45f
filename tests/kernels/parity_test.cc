// SPDX-License-Identifier: Apache-2.0
// Every row of every family that this machine runs gives the reference's bytes, and none escapes the comparison.
#include <gtest/gtest-spi.h>

#include <cstdio>

#include "tests/kernels/families.h"

namespace trivet::kernels {
namespace {

class Parity : public testing::TestWithParam<Family> {};

TEST_P(Parity, EveryRunnableRowGivesTheReferenceBytes) {
  RowLog log;
  GetParam().compare(&log);
  EXPECT_EQ(log.compared(), RunnableOf(GetParam().name, CpuTarget()))
      << "a row that this machine runs was not compared";
  std::printf("%s: %d rows, %d comparisons\n", GetParam().name, static_cast<int>(log.compared().size()),
              static_cast<int>(log.cases()));
}

INSTANTIATE_TEST_SUITE_P(Families, Parity, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ParityTable, HoldsEveryFamilyOfTheRegistry) {
  std::set<std::string> table, registry;
  for (const Family& family : kFamilies) table.insert(family.name);
  for (const auto& names : RunnableRows(CpuTarget())) {
    ASSERT_FALSE(names.empty()) << "a family without a row for this machine";
    registry.insert(names.front().substr(0, names.front().find('/')));
  }
  EXPECT_EQ(table, registry);
}

TEST(RowLog, CatchesADifferentByteAndAChangedCanary) {
  static const auto log_of = [](int64_t at, float value) {
    RowLog log;
    log.Compare<GatedAct>("planted", [&](const KernelRow<GatedAct>& row, Outputs* outputs) {
      Guarded<float> y(5);
      std::fill_n(y.data(), 5, 1.0F);
      if (row.name == RunnableRowsOf<GatedAct>().front().name) y.data()[at] = value;
      outputs->Take(y);
    });
  };
  if (RunnableRowsOf<GatedAct>().size() == 1) GTEST_SKIP() << "this machine runs the reference row only";
  EXPECT_FATAL_FAILURE(log_of(4, 1.0000001F), "byte 16 of 20 differs from gated_act/ref");
  EXPECT_NONFATAL_FAILURE(log_of(5, 0.0F), "wrote outside its output");
  EXPECT_NONFATAL_FAILURE(log_of(-1, 0.0F), "wrote outside its output");
}

}  // namespace
}  // namespace trivet::kernels
