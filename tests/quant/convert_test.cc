// SPDX-License-Identifier: Apache-2.0
// Every bit pattern of every small format against one formula: sign * (hidden + mantissa) * 2^(exponent - bias).
#include "quant/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace trivet::quant {
namespace {

using tensor::DType;
using testing::HasSubstr;

struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias;
};

// The value of finite `bits`.
double Value(uint32_t bits, const Format& format) {
  const int mantissa = static_cast<int>(bits & ((1u << format.mantissa_bits) - 1));
  const int exponent = static_cast<int>((bits >> format.mantissa_bits) & ((1u << format.exponent_bits) - 1));
  const bool negative = ((bits >> (format.mantissa_bits + format.exponent_bits)) & 1) != 0;
  const double significand = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  const double magnitude = std::ldexp(significand, std::max(exponent, 1) - format.bias - format.mantissa_bits);
  return negative ? -magnitude : magnitude;
}

// Equal as numbers and in the sign of zero, or both NaN.
testing::AssertionResult Same(double expected, float found) {
  const bool same =
      std::isnan(expected) ? std::isnan(found) : expected == found && std::signbit(expected) == std::signbit(found);
  if (same) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected " << expected << ", found " << found;
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The value of `bits` in a format with IEEE's infinities and NaNs.
double IeeeValue(uint32_t bits, const Format& format) {
  const uint32_t magnitude = bits & ((1u << (format.exponent_bits + format.mantissa_bits)) - 1);
  const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  if (magnitude > infinity) return kNaN;
  if (magnitude == infinity) return magnitude == bits ? kInfinity : -kInfinity;
  return Value(bits, format);
}

TEST(Convert, EveryBF16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float found = FromBF16(static_cast<uint16_t>(bits));
    ASSERT_TRUE(Same(IeeeValue(bits, {8, 7, 127}), found)) << bits;
    if (!std::isnan(found)) {
      ASSERT_EQ(ToBF16(found), bits);
    }
  }
}

TEST(Convert, EveryF16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float found = FromF16(static_cast<uint16_t>(bits));
    ASSERT_TRUE(Same(IeeeValue(bits, {5, 10, 15}), found)) << bits;
    if (!std::isnan(found)) {
      ASSERT_EQ(ToF16(found), bits);
    }
  }
}

TEST(Convert, EveryF8) {
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    EXPECT_TRUE(Same((bits & 0x7f) == 0x7f ? kNaN : Value(bits, {4, 3, 7}), FromE4M3(byte))) << bits;
    EXPECT_TRUE(Same(IeeeValue(bits, {5, 2, 15}), FromE5M2(byte))) << bits;
    EXPECT_TRUE(Same(bits == 0x80 ? kNaN : Value(bits, {4, 3, 8}), FromE4M3Fnuz(byte))) << bits;
    EXPECT_TRUE(Same(bits == 0x80 ? kNaN : Value(bits, {5, 2, 16}), FromE5M2Fnuz(byte))) << bits;
    EXPECT_TRUE(Same(bits == 0xff ? kNaN : std::ldexp(1.0, static_cast<int>(bits) - 127), FromE8M0(byte))) << bits;
  }
}

TEST(Convert, LargestValues) {
  EXPECT_EQ(FromE4M3(0x7e), 448.0f);
  EXPECT_EQ(FromE5M2(0x7b), 57344.0f);
  EXPECT_EQ(FromE4M3Fnuz(0x7f), 240.0f);
  EXPECT_EQ(FromE5M2Fnuz(0x7f), 57344.0f);
  EXPECT_EQ(FromF16(0x7bff), 65504.0f);
}

// Narrowing checked at every border: each value, the midpoint to the next, and one step of F32 to either side of it.
template <class From, class To>
void CheckRounding(From from, To to, uint16_t infinity) {
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const double low_value = from(low);
    // Beyond the largest value the next one would be as far again.
    const double high_value = high == infinity ? 2 * low_value - from(static_cast<uint16_t>(bits - 1)) : from(high);
    const auto middle = static_cast<float>((low_value + high_value) / 2);
    ASSERT_EQ(to(middle), (bits & 1) == 0 ? low : high) << bits;
    ASSERT_EQ(to(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(to(std::nextafter(middle, INFINITY)), high) << bits;
    ASSERT_EQ(to(-middle), ((bits & 1) == 0 ? low : high) | 0x8000) << bits;
  }
}

TEST(Convert, NarrowingRoundsToNearestEven) {
  CheckRounding(FromBF16, ToBF16, 0x7f80);
  CheckRounding(FromF16, ToF16, 0x7c00);
}

// Codes are magnitudes in ascending order: a value belongs to the nearer of two neighbours, halfway to the even code.
template <class From, class To>
void CheckSmallRounding(From from, To to, int largest, int sign_bit) {
  for (int code = 0; code < largest; ++code) {
    const float below = from(static_cast<uint8_t>(code)), above = from(static_cast<uint8_t>(code + 1));
    const float halfway = below + (above - below) / 2;
    for (const int sign : {0, sign_bit}) {
      const float unit = sign == 0 ? 1.0f : -1.0f;
      EXPECT_EQ(to(unit * below), code | sign);
      EXPECT_EQ(to(unit * halfway), (code % 2 == 0 ? code : code + 1) | sign) << halfway;
      EXPECT_EQ(to(unit * std::nextafterf(halfway, below)), code | sign);
      EXPECT_EQ(to(unit * std::nextafterf(halfway, above)), (code + 1) | sign);
    }
  }
  for (const float beyond : {from(static_cast<uint8_t>(largest)), 500.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(to(beyond), largest) << beyond;
    EXPECT_EQ(to(-beyond), largest | sign_bit) << beyond;
  }
}

TEST(Convert, NarrowingToF8AndF4RoundsToNearestEvenAndSaturates) {
  CheckSmallRounding(FromE4M3, ToE4M3, 0x7e, 0x80);
  const auto from_e2m1 = [](uint8_t code) {
    constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return kMagnitudes[code];
  };
  CheckSmallRounding(from_e2m1, ToE2M1, 7, 8);
  EXPECT_TRUE(std::isnan(FromE4M3(ToE4M3(NAN))));
}

TEST(Convert, NarrowingExtremes) {
  EXPECT_EQ(ToF16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(ToF16(-INFINITY), 0xfc00);
  EXPECT_EQ(ToF16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(ToF16(-0.0f), 0x8000);
  EXPECT_EQ(ToBF16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Convert, NarrowingKeepsNaN) {
  // Payloads that only the dropped bits hold must not turn into infinity.
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu, 0x7f80ffffu}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(FromBF16(ToBF16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(FromF16(ToF16(nan)))) << bits;
    EXPECT_EQ(std::signbit(FromBF16(ToBF16(nan))), (bits >> 31) != 0) << bits;
    EXPECT_EQ(std::signbit(FromF16(ToF16(nan))), (bits >> 31) != 0) << bits;
  }
}

template <class T>
std::vector<float> Decoded(DType dtype, const std::vector<T>& values) {
  std::vector<std::byte> bytes(1);  // one byte before the elements: alignment must not matter
  const auto elements = std::as_bytes(std::span(values));
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  std::vector<float> out(values.size());
  const Status status = DecodeToFloat(dtype, std::span(bytes).subspan(1), out);
  EXPECT_TRUE(status.ok()) << tensor::DTypeName(dtype);
  return out;
}

using Floats = std::vector<float>;

TEST(DecodeToFloat, Integers) {
  EXPECT_EQ(Decoded<uint8_t>(DType::kBool, {0, 1, 7}), (Floats{0, 1, 1}));
  EXPECT_EQ(Decoded<uint8_t>(DType::kU8, {0, 255}), (Floats{0, 255}));
  EXPECT_EQ(Decoded<int8_t>(DType::kI8, {-128, 127}), (Floats{-128, 127}));
  EXPECT_EQ(Decoded<int16_t>(DType::kI16, {-32768, 32767}), (Floats{-32768, 32767}));
  EXPECT_EQ(Decoded<uint16_t>(DType::kU16, {65535}), (Floats{65535}));
  EXPECT_EQ(Decoded<int32_t>(DType::kI32, {-(1 << 24) - 1, 3}), (Floats{-0x1p24f, 3}));
  EXPECT_EQ(Decoded<uint32_t>(DType::kU32, {0xffffffffu}), (Floats{0x1p32f}));
  EXPECT_EQ(Decoded<int64_t>(DType::kI64, {INT64_MIN, -5}), (Floats{-0x1p63f, -5}));
  EXPECT_EQ(Decoded<uint64_t>(DType::kU64, {UINT64_MAX}), (Floats{0x1p64f}));
}

TEST(DecodeToFloat, Floats) {
  EXPECT_EQ(Decoded<uint16_t>(DType::kBF16, {0x3f80, 0xc000}), (Floats{1, -2}));
  EXPECT_EQ(Decoded<uint16_t>(DType::kF16, {0x3c00, 0x0001}), (Floats{1, 0x1p-24f}));
  EXPECT_EQ(Decoded<float>(DType::kF32, {1.5f, -0x1p-149f}), (Floats{1.5f, -0x1p-149f}));
  EXPECT_EQ(Decoded<double>(DType::kF64, {0.1, 1e300}), (Floats{0.1f, INFINITY}));
  EXPECT_EQ(Decoded<uint8_t>(DType::kF8E4M3, {0x38, 0x01}), (Floats{1, 0x1p-9f}));
  EXPECT_EQ(Decoded<uint8_t>(DType::kF8E5M2, {0x3c}), (Floats{1}));
  EXPECT_EQ(Decoded<uint8_t>(DType::kF8E4M3Fnuz, {0x40}), (Floats{1}));
  EXPECT_EQ(Decoded<uint8_t>(DType::kF8E5M2Fnuz, {0x40}), (Floats{1}));
  EXPECT_EQ(Decoded<uint8_t>(DType::kF8E8M0, {127, 0}), (Floats{1, 0x1p-127f}));
}

TEST(DecodeToFloat, EveryOtherFormatIsRefusedByName) {
  std::vector<std::byte> bytes(8);
  std::vector<float> out(1);
  for (const DType dtype : {DType::kC64, DType::kF4, DType::kF6E2M3, DType::kF6E3M2}) {
    const Status status = DecodeToFloat(dtype, bytes, out);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kUnsupported);
    EXPECT_THAT(status.error().message, HasSubstr(std::string("dtype ") + tensor::DTypeName(dtype)));
  }
}

TEST(DecodeToFloatDeathTest, SizesMustAgree) {
  std::vector<std::byte> bytes(3);
  std::vector<float> out(1);
  EXPECT_DEATH((void)DecodeToFloat(DType::kF32, bytes, out), "3 bytes for 1 elements");
}

}  // namespace
}  // namespace trivet::quant
