// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace trivet::kernels {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

// A family with rows for two made-up targets.
struct Fake {
  struct Args {};
  static std::span<const KernelRow<Fake>> Rows() {
    static constexpr KernelRow<Fake> kRows[] = {
        {"fake/wide2", 1, nullptr}, {"fake/e2", 2, nullptr}, {"fake/ref", 0, nullptr}};
    return kRows;
  }
  static std::span<const KernelRow<Fake>> CudaRows() {
    static constexpr KernelRow<Fake> kRows[] = {{"fake/sm90", 90, nullptr}, {"fake/cuda", 0, nullptr}};
    return kRows;
  }
};

std::string Chosen(int64_t level, std::string_view name, Backend backend = Backend::kCpu) {
  const KernelRow<Fake>* row = Select<Fake>({backend, level}, name);
  return row == nullptr ? "none" : std::string(row->name);
}

TEST(Select, TakesTheFirstRowTheMachineRuns) {
  EXPECT_EQ(Chosen(3, ""), "fake/wide2");
  EXPECT_EQ(Chosen(2, ""), "fake/e2");
  EXPECT_EQ(Chosen(0, ""), "fake/ref");
}

TEST(Select, ADevicesRowsNeedAComputeCapability) {
  EXPECT_EQ(Chosen(90, "", Backend::kCuda), "fake/sm90");
  EXPECT_EQ(Chosen(120, "", Backend::kCuda), "fake/sm90");
  EXPECT_EQ(Chosen(80, "", Backend::kCuda), "fake/cuda");
  EXPECT_EQ(Chosen(90, "ref", Backend::kCuda), "none") << "a processor's row";
}

TEST(Select, ANameIsWhole) {
  EXPECT_EQ(Chosen(3, "e2"), "fake/e2") << "not the first name that ends in these letters";
  EXPECT_EQ(Chosen(3, "2"), "none");
  EXPECT_EQ(Chosen(3, "ref"), "fake/ref");
  EXPECT_EQ(Chosen(2, "wide2"), "none") << "the machine lacks its target";
  EXPECT_EQ(Chosen(3, "fake/e2"), "fake/e2");
}

TEST(ExplainRows, GivesAReasonForEveryRow) {
  const auto answers = ExplainRows(CpuTarget(), {}, "gemm");
  ASSERT_TRUE(answers.ok());
  EXPECT_EQ(answers->size(), Gemm::Rows().size());
  int64_t chosen = 0;
  for (const RowAnswer& one : *answers) {
    chosen += one.chosen ? 1 : 0;
    EXPECT_NE(one.reason, "");
    EXPECT_EQ(one.chosen, one.row == SelectKernels(CpuTarget(), {})->gemm->name);
  }
  EXPECT_EQ(chosen, 1);
  const auto reason_of = [](const Target& target, const KernelOptions& options, const std::string& row) {
    const std::vector<RowAnswer> rows = ExplainRows(target, options, "gemm").value();
    for (const RowAnswer& one : rows) {
      if (one.row == row) return one.reason;
    }
    return std::string("no such row");
  };
  EXPECT_THAT(reason_of({Backend::kCpu, 0}, {}, "gemm/avx512"), HasSubstr("needs vector unit"));
  EXPECT_THAT(reason_of(CpuTarget(), {"", {{"gemm", "gemm/ref"}}}, "gemm/avx512"), HasSubstr("gemm/ref is forced"));
  EXPECT_EQ(reason_of(CpuTarget(), {"", {{"gemm", "gemm/ref"}}}, "gemm/ref"), "forced");
  EXPECT_EQ(ExplainRows(CpuTarget(), {}, "gem").error().code, Code::kUsage);
}

TEST(SelectKernels, WhatIsNoRowIsToldWithThoseThatAre) {
  const auto refusal = [](const KernelOptions& options) { return SelectKernels(CpuTarget(), options).error().message; };
  const std::string rows = refusal({"zzz", {}});
  EXPECT_THAT(rows,
              AllOf(HasSubstr("--rows: expected a name of rows"), HasSubstr("ref, "), HasSubstr("found \"zzz\"")));
  EXPECT_LT(rows.size(), 200U) << "each name once: " << rows;
  EXPECT_THAT(refusal({"", {{"gemm", "zzz"}}}),
              AllOf(HasSubstr("--force: expected a row of gemm"), HasSubstr(", gemm/ref,"), HasSubstr("\"gemm=zzz\"")));
  EXPECT_THAT(refusal({"", {{"gem", "gemm/ref"}}}), HasSubstr("--force: expected a kernel family such as gemm, found"));
}

TEST(SelectKernels, DefaultsToTheFirstRunnableRowOfEveryFamily) {
  const Result<Kernels> chosen = SelectKernels(CpuTarget(), {});
  ASSERT_TRUE(chosen.ok());
  const std::vector<std::string> names = chosen->Names();
  const std::vector<std::vector<std::string>> runnable = RunnableRows(CpuTarget());
  ASSERT_EQ(names.size(), runnable.size());
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], runnable[i].front());
}

TEST(SelectKernels, EveryFamilyHasAReferenceRowThatStandsLast) {
  std::set<std::string> families;
  for (const std::vector<std::string>& rows : RunnableRows(CpuTarget())) {
    ASSERT_FALSE(rows.empty());
    EXPECT_THAT(rows.back(), EndsWith("/ref"));
    families.insert(rows.back());
  }
  EXPECT_EQ(families.size(), RunnableRows(CpuTarget()).size());
}

TEST(SelectKernels, ANameChoosesThatRowWhereThereIsOne) {
  const Result<Kernels> chosen = SelectKernels(CpuTarget(), {"ref", {}});
  ASSERT_TRUE(chosen.ok());
  for (const std::string& name : chosen->Names()) EXPECT_THAT(name, EndsWith("/ref"));
  const std::vector<std::string> gemm_rows = RunnableRows(CpuTarget())[5];
  for (const std::string& row : gemm_rows) {
    const std::string name = row.substr(row.find('/') + 1);
    const Result<Kernels> by_name = SelectKernels(CpuTarget(), {name, {}});
    ASSERT_TRUE(by_name.ok()) << name;
    EXPECT_EQ(by_name->gemm->name, row);
    EXPECT_EQ(by_name->route->name, "route/ref");
  }
}

TEST(SelectKernels, ForceWinsForItsFamily) {
  const Result<Kernels> chosen = SelectKernels(CpuTarget(), {"", {{"gemm", "gemm/ref"}}});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->gemm->name, "gemm/ref");
  EXPECT_EQ(chosen->attention->name, RunnableRows(CpuTarget())[8].front());
  const Result<Kernels> against =
      SelectKernels(CpuTarget(), {"ref", {{"attention", RunnableRows(CpuTarget())[8].front()}}});
  ASSERT_TRUE(against.ok());
  EXPECT_EQ(against->attention->name, RunnableRows(CpuTarget())[8].front());
  EXPECT_EQ(against->gemm->name, "gemm/ref");
}

TEST(SelectKernels, NamesThatExistNowhereAreUsageErrors) {
  const std::pair<KernelOptions, const char*> cases[] = {
      {{"avx9", {}}, "\"avx9\""},
      {{"f", {}}, "\"f\""},
      {{"gemm/ref ", {}}, "\"gemm/ref \""},
      {{"", {{"gemm", "gemm/avx9"}}}, "\"gemm=gemm/avx9\""},
      {{"", {{"gemm", "ref"}}}, "\"gemm=ref\""},
      {{"", {{"gemm", ""}}}, "\"gemm=\""},
      {{"", {{"gemm", "attention/ref"}}}, "\"gemm=attention/ref\""},
      {{"", {{"gem", "gemm/ref"}}}, "\"gem=gemm/ref\""},
      {{"", {{"attention", "attention/ref"}, {"zzz", "gemm/ref"}}}, "\"zzz=gemm/ref\""},
  };
  for (const auto& [options, found] : cases) {
    const Result<Kernels> chosen = SelectKernels(CpuTarget(), options);
    ASSERT_FALSE(chosen.ok()) << found;
    EXPECT_EQ(chosen.error().code, Code::kUsage);
    EXPECT_THAT(chosen.error().message, AllOf(HasSubstr(std::string("found ") + found), HasSubstr("expected ")));
  }
}

}  // namespace
}  // namespace trivet::kernels
