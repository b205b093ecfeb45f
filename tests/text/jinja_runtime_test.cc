// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_runtime.h"

#include <gtest/gtest.h>

#include <deque>

namespace trivet::text::jinja {
namespace {

class PlainRuntime : public Runtime {
 public:
  Result<Value> CallMacro(const MacroObject&, CallArguments) override { return Value(); }
  Result<std::optional<Value>> TakeItem(LoopObject*) override { return std::optional<Value>(); }
};

Result<Value> Second(Runtime&, const Value&, const Arguments& arguments) {
  return arguments.Get(1) == nullptr ? Value::None() : arguments.At(1);
}

Result<Value> Rest(Runtime&, const Value&, const Arguments& arguments) {
  return Value::Int(10 * std::ssize(arguments.rest().positional) + std::ssize(arguments.rest().keywords));
}

constexpr Native kSecond = {"second", "/first second?", Second};
constexpr Native kRest = {"rest", "first? * **", Rest};

TEST(JinjaRuntime, BindsArguments) {
  PlainRuntime runtime;
  EXPECT_EQ(RunNative(runtime, kSecond, Value(), {{Value::Int(1), Value::Int(2)}, {}})->integer(), 2);
  EXPECT_EQ(RunNative(runtime, kSecond, Value(), {{Value::Int(1)}, {{"second", Value::Int(3)}}})->integer(), 3);
  EXPECT_TRUE(RunNative(runtime, kSecond, Value(), {{Value::Int(1)}, {}})->Is(Kind::kNone));
  EXPECT_EQ(RunNative(runtime, kRest, Value(), {{Value(), Value(), Value()}, {{"z", Value()}}})->integer(), 21);
}

TEST(JinjaRuntime, RefusesArgumentsThatDoNotFit) {
  PlainRuntime runtime;
  EXPECT_FALSE(RunNative(runtime, kSecond, Value(), {}).ok());
  EXPECT_FALSE(RunNative(runtime, kSecond, Value(), {{Value(), Value(), Value()}, {}}).ok());
  EXPECT_FALSE(RunNative(runtime, kSecond, Value(), {{}, {{"first", Value()}}}).ok());
  EXPECT_FALSE(RunNative(runtime, kSecond, Value(), {{Value(), Value()}, {{"second", Value()}}}).ok());
  EXPECT_FALSE(RunNative(runtime, kSecond, Value(), {{Value()}, {{"third", Value()}}}).ok());
}

TEST(JinjaRuntime, CountsSteps) {
  PlainRuntime runtime;
  EXPECT_TRUE(runtime.Charge(kMaxSteps).ok());
  EXPECT_FALSE(runtime.Charge(1).ok());
}

TEST(JinjaRuntime, CountsLevels) {
  PlainRuntime runtime;
  std::deque<Runtime::Level> levels;
  for (int i = 0; i < kMaxStack; ++i) levels.emplace_back(&runtime);
  EXPECT_TRUE(runtime.CheckStack().ok());
  levels.emplace_back(&runtime);
  EXPECT_FALSE(runtime.CheckStack().ok());
  levels.clear();
  EXPECT_TRUE(runtime.CheckStack().ok());
}

TEST(JinjaRuntime, RefusesLongStrings) {
  PlainRuntime runtime;
  EXPECT_TRUE(runtime.ChargeValue(Value::String(std::string(1000, 'x'))).ok());
  EXPECT_FALSE(runtime.ChargeValue(Value::String(std::string(kMaxWeight + 1, 'x'))).ok());
}

}  // namespace
}  // namespace trivet::text::jinja
