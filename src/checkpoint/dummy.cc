// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dummy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/hash.h"
#include "base/str.h"
#include "checkpoint/stored_weight.h"

namespace trivet::checkpoint {
namespace {

using tensor::DType;

// Bytes after which a tensor repeats itself: no multiple of a row of a usual width.
constexpr int64_t kPeriod = (int64_t{1} << 20) - 64;

// Values of one kind, kPeriod bytes of them.
template <class T, class Value>
std::vector<std::byte> Pattern(const Value& value) {
  std::vector<std::byte> bytes(static_cast<size_t>(kPeriod));
  uint64_t state = 0x9E3779B97F4A7C15ULL;
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const T element = value(static_cast<uint32_t>(state >> 32));
    std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
  }
  return bytes;
}

// Within 1/16.
float Small(uint32_t random) { return static_cast<float>(static_cast<int32_t>(random)) * 0x1p-35F; }

const std::vector<std::byte>& PatternOf(const TensorInfo& info) {
  static const std::vector<std::byte> kBF16 = Pattern<uint16_t>(
      [](uint32_t random) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(Small(random)) >> 16); });
  static const std::vector<std::byte> kF32 = Pattern<float>(Small);
  // Of FP8: codes below are at most 1.875, so weights stay within 1/16.
  static const std::vector<std::byte> kScale =
      Pattern<float>([](uint32_t random) { return 0x1p-6F + static_cast<float>(random >> 20) * 0x1p-19F; });
  static const std::vector<std::byte> kE4M3 =
      Pattern<uint8_t>([](uint32_t random) { return static_cast<uint8_t>(random & 0xBFU); });
  // Powers of two from 2^-10 to 2^-7; codes of E2M1 are at most 6.
  static const std::vector<std::byte> kE8M0 =
      Pattern<uint8_t>([](uint32_t random) { return static_cast<uint8_t>(117 + random % 4); });
  static const std::vector<std::byte> kCodes =
      Pattern<uint8_t>([](uint32_t random) { return static_cast<uint8_t>(random); });
  const bool scale = info.name.ends_with("_scale") || info.name.ends_with("_scale_inv");
  if (info.dtype == DType::kBF16) return kBF16;
  if (info.dtype == DType::kF32) return scale ? kScale : kF32;
  if (info.dtype == DType::kF8E4M3) return kE4M3;
  return scale ? kE8M0 : kCodes;
}

// The tensors of a made-up checkpoint.
class Maker {
 public:
  explicit Maker(DummyFormat format) : format_(format) {}

  Status Add(const DummyWeight& weight) {
    constexpr std::string_view kSuffix = ".weight";
    if (!weight.product || format_ == DummyFormat::kBF16 || !weight.name.ends_with(kSuffix)) {
      return Put(weight.name, DType::kBF16, weight.shape);
    }
    const std::string module = weight.name.substr(0, weight.name.size() - kSuffix.size());
    const int64_t rows = weight.shape[0], cols = weight.shape[1];
    constexpr int64_t kBlock = 128;
    if (format_ == DummyFormat::kFp8) {
      TRY(Put(weight.name, DType::kF8E4M3, weight.shape));
      return Put(module + ".weight_scale_inv", DType::kF32,
                 {(rows + kBlock - 1) / kBlock, (cols + kBlock - 1) / kBlock});
    }
    if (cols % kMxColumns != 0) {
      return MakeError(Code::kUnsupported, fmt::format("{}: expected a width that is a multiple of {} for mxfp4, found "
                                                       "{}; use --dummy-weights fp8",
                                                       weight.name, kMxColumns, cols));
    }
    TRY(Put(module + ".weight_packed", DType::kU8, {rows, cols / 2}));
    return Put(module + ".weight_scale", DType::kU8, {rows, cols / kMxColumns});
  }

  std::vector<TensorInfo> Take() { return std::move(tensors_); }

 private:
  Status Put(std::string name, DType dtype, std::vector<int64_t> shape) {
    TensorInfo info;
    TRY_ASSIGN(info.bytes, TensorBytes(dtype, shape, name));
    info.name = std::move(name);
    info.dtype = dtype;
    info.shape = std::move(shape);
    tensors_.push_back(std::move(info));
    return {};
  }

  const DummyFormat format_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

Result<DummyFormat> ParseDummyFormat(const std::string& name) {
  if (name == "bf16") return DummyFormat::kBF16;
  if (name == "fp8") return DummyFormat::kFp8;
  if (name == "mxfp4") return DummyFormat::kMxfp4;
  return MakeError(Code::kUsage,
                   fmt::format("--dummy-weights: expected bf16, fp8 or mxfp4, found \"{}\"; choose one", Quote(name)));
}

Result<Checkpoint> MakeDummy(std::span<const DummyWeight> weights, DummyFormat format) {
  Maker maker(format);
  for (const DummyWeight& weight : weights) TRY(maker.Add(weight));
  return Checkpoint::OfTensors(maker.Take());
}

void FillDummy(const TensorInfo& info, int64_t offset, std::span<std::byte> dst) {
  const std::vector<std::byte>& pattern = PatternOf(info);
  // Tensors begin at different places of the pattern, whole elements.
  const auto salt = static_cast<int64_t>(Hash64(std::as_bytes(std::span(info.name))) % (kPeriod / 64)) * 64;
  size_t at = static_cast<size_t>((salt + offset) % kPeriod);
  while (!dst.empty()) {
    const size_t count = std::min(dst.size(), pattern.size() - at);
    std::memcpy(dst.data(), pattern.data() + at, count);
    dst = dst.subspan(count);
    at = 0;
  }
}

}  // namespace trivet::checkpoint
