// SPDX-License-Identifier: Apache-2.0
#include "engine/finite_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/str.h"
#include "quant/convert.h"

namespace trivet::engine {
namespace {

using tensor::DType;

// A multiple of every format's unit; two buffers of it, codes and floats, are all the memory a scan takes.
constexpr int64_t kElements = int64_t{1} << 20;

struct Count {
  int64_t nan = 0, infinite = 0;
  int64_t first = -1;  // element
};

// The dtype to read a tensor's bytes as; nothing when all its bit patterns are finite.
std::optional<DType> ReadAs(const checkpoint::TensorInfo& info, const std::set<std::string>& byte_scales) {
  switch (info.dtype) {
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
      return std::nullopt;
    case DType::kC64:
      return DType::kF32;  // two of them
    case DType::kU8:
      return byte_scales.contains(info.name) ? std::optional(DType::kF8E8M0) : std::nullopt;
    default:
      return info.dtype;
  }
}

Result<Count> Scan(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info, DType dtype,
                   const std::function<void(int64_t)>& read) {
  const tensor::DTypeUnit unit = tensor::UnitOf(dtype);
  std::vector<std::byte> codes;
  std::vector<float> values;
  Count count;
  for (int64_t at = 0; at < info.bytes; at += static_cast<int64_t>(codes.size())) {
    codes.resize(static_cast<size_t>(std::min(kElements / unit.elements * unit.bytes, info.bytes - at)));
    values.resize(codes.size() / static_cast<size_t>(unit.bytes) * static_cast<size_t>(unit.elements));
    TRY(checkpoint.Read(info, at, codes));
    TRY(quant::DecodeToFloat(dtype, codes, values));
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      ++(std::isnan(values[i]) ? count.nan : count.infinite);
      if (count.first < 0) count.first = at / unit.bytes * unit.elements + static_cast<int64_t>(i);
    }
    read(static_cast<int64_t>(codes.size()));
  }
  return count;
}

std::string Sentence(const checkpoint::TensorInfo& info, DType dtype, const Count& count) {
  if (dtype == DType::kF8E8M0) {
    return fmt::format(
        "{}: expected E8M0 scales below 0xFF, found {} of 0xFF, the first at element {}; fetch or "
        "convert the model again",
        Quote(info.name), count.nan, count.first);
  }
  return fmt::format(
      "{}: expected finite numbers, found {} NaN and {} infinite, the first at element {}{}; fetch or "
      "convert the model again",
      Quote(info.name), count.nan, count.infinite, count.first,
      dtype == DType::kMxfp4 ? ", of E8M0 scales of 0xFF" : "");
}

}  // namespace

Result<std::vector<std::string>> NonFiniteTensors(const checkpoint::Checkpoint& checkpoint,
                                                  const std::set<std::string>& byte_scales,
                                                  const std::function<void(int64_t done, int64_t total)>& progress) {
  std::vector<const checkpoint::TensorInfo*> in_order;
  for (const checkpoint::TensorInfo& info : checkpoint.tensors()) in_order.push_back(&info);
  std::sort(in_order.begin(), in_order.end(),
            [](const auto* a, const auto* b) { return std::pair(a->file, a->offset) < std::pair(b->file, b->offset); });
  std::vector<std::string> found;
  int64_t done = 0;
  const auto read = [&](int64_t bytes) {
    done += bytes;
    if (progress) progress(done, checkpoint.total_bytes());
  };
  for (const checkpoint::TensorInfo* info : in_order) {
    const std::optional<DType> dtype = ReadAs(*info, byte_scales);
    if (!dtype.has_value()) {
      read(info->bytes);
      continue;
    }
    TRY_ASSIGN(const Count count, Scan(checkpoint, *info, *dtype, read));
    if (count.first >= 0) found.push_back(Sentence(*info, *dtype, count));
  }
  return found;
}

}  // namespace trivet::engine
