// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace trivet {
namespace {

constexpr Code kCodes[] = {Code::kUsage,      Code::kNotFound, Code::kInvalid, Code::kUnsupported,
                           Code::kInfeasible, Code::kCapacity, Code::kIo,      Code::kPeer};

Status Fail(bool fail) {
  if (fail) return MakeError(Code::kIo, "no");
  return {};
}

Result<int> Half(int value) {
  if (value % 2 != 0) return MakeError(Code::kInvalid, "odd");
  return value / 2;
}

Status Steps(bool fail, int* steps) {
  ++*steps;
  TRY(Fail(fail));
  ++*steps;
  return {};
}

Result<int> Quarter(int value) {
  TRY_ASSIGN(const int half, Half(value));
  int quarter = 0;
  TRY_ASSIGN(quarter, Half(half));
  return quarter;
}

Result<std::unique_ptr<int>> Boxed(int value) {
  TRY_ASSIGN(const int half, Half(value));
  return std::make_unique<int>(half);
}

TEST(Code, EveryCodeHasAStatusAndANameOfItsOwn) {
  std::set<int> statuses;
  std::set<std::string> names;
  for (const Code code : kCodes) {
    statuses.insert(ExitStatus(code));
    names.insert(CodeName(code));
    EXPECT_GE(ExitStatus(code), 2) << "0 is success and 1 an internal error";
    EXPECT_LT(ExitStatus(code), 64);
  }
  EXPECT_EQ(statuses.size(), std::size(kCodes));
  EXPECT_EQ(names.size(), std::size(kCodes));
}

TEST(MakeError, KnowsWhereItWasMade) {
  const Error error = MakeError(Code::kIo, "text");
  EXPECT_TRUE(std::string(error.file).ends_with("result_test.cc"));
  EXPECT_EQ(error.line, __LINE__ - 2);
}

TEST(Status, IsSuccessOrAnError) {
  EXPECT_TRUE(Status().ok());
  const Status failed = Fail(true);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kIo);
  EXPECT_EQ(failed.error().message, "no");
}

TEST(Result, HoldsAValueOrAnError) {
  Result<int> good = Half(8);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 4);
  *good = 7;
  EXPECT_EQ(good.value(), 7);
  const Result<int> bad = Half(3);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message, "odd");
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> boxed = Boxed(6);
  ASSERT_TRUE(boxed.ok());
  const std::unique_ptr<int> value = std::move(boxed).value();
  EXPECT_EQ(*value, 3);
  EXPECT_FALSE(Boxed(5).ok());
}

TEST(Try, ReturnsTheFirstError) {
  int steps = 0;
  EXPECT_TRUE(Steps(false, &steps).ok());
  EXPECT_EQ(steps, 2);
  EXPECT_FALSE(Steps(true, &steps).ok());
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).error().message, "odd");
}

TEST(ResultDeathTest, ReadingWhatIsNotThereAborts) {
  EXPECT_DEATH(static_cast<void>(Half(3).value()), "internal error.*CHECK");
  EXPECT_DEATH(static_cast<void>(Half(2).error()), "internal error.*CHECK");
  EXPECT_DEATH(static_cast<void>(Status().error()), "internal error.*CHECK");
}

}  // namespace
}  // namespace trivet
