// SPDX-License-Identifier: Apache-2.0
#include "engine/finite_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

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
std::optional<DType> ReadAs(const checkpoint::TensorInfo& info, const ScaleTensors& scales) {
  switch (info.dtype) {
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
      return std::nullopt;
    case DType::kC64:
      return DType::kF32;  // two of them
    case DType::kU8:
      return scales.bytes.contains(info.name) ? std::optional(DType::kF8E8M0) : std::nullopt;
    default:
      return info.dtype;
  }
}

// How a tensor is read: as which dtype, and where its values are kept, or null.
struct ScanOptions {
  DType dtype;
  std::vector<float>* kept = nullptr;
};

Result<Count> Scan(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& info,
                   const ScanOptions& options, const std::function<void(int64_t)>& read) {
  const DType dtype = options.dtype;
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
    if (options.kept != nullptr) options.kept->insert(options.kept->end(), values.begin(), values.end());
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

// Scales of one kind: how many, and the first.
struct Kind {
  int64_t count = 0, first = -1;
  void Add(size_t element) {
    if (count++ == 0) first = static_cast<int64_t>(element);
  }
};

// What no scales of FP8 blocks should be, besides not finite.
void CheckFp8Scales(const std::string& name, const std::vector<float>& scales, ScanFindings* found) {
  std::vector<float> sorted;
  std::copy_if(scales.begin(), scales.end(), std::back_inserter(sorted),
               [](float scale) { return std::isfinite(scale) && scale > 0; });
  float median = 0;
  if (!sorted.empty()) {
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    median = *middle;
  }
  Kind negative, zero, outlying;
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!std::isfinite(scales[i])) continue;
    if (scales[i] < 0) negative.Add(i);
    if (scales[i] == 0) zero.Add(i);
    if (scales[i] / kOutlyingScale > median) outlying.Add(i);
  }
  if (negative.count > 0) {
    found->defects.push_back(
        fmt::format("{}: expected scales above 0, found {} below, the first at element {}; fetch "
                    "or convert the model again",
                    Quote(name), negative.count, negative.first));
  }
  if (zero.count > 0) {
    found->notices.push_back(
        fmt::format("{}: {} scales are 0, the first at element {}: their blocks are zero, whatever "
                    "their codes are",
                    Quote(name), zero.count, zero.first));
  }
  if (outlying.count > 0) {
    found->notices.push_back(
        fmt::format("{}: {} scales are more than {} times their median {}, the first at element "
                    "{} with {}",
                    Quote(name), outlying.count, kOutlyingScale, median, outlying.first,
                    scales[static_cast<size_t>(outlying.first)]));
  }
}

}  // namespace

Result<ScanFindings> ScanTensors(const checkpoint::Checkpoint& checkpoint, const ScaleTensors& scales,
                                 const std::function<void(int64_t done, int64_t total)>& progress) {
  std::vector<const checkpoint::TensorInfo*> in_order;
  for (const checkpoint::TensorInfo& info : checkpoint.tensors()) in_order.push_back(&info);
  std::sort(in_order.begin(), in_order.end(),
            [](const auto* a, const auto* b) { return std::pair(a->file, a->offset) < std::pair(b->file, b->offset); });
  ScanFindings found;
  int64_t done = 0;
  const auto read = [&](int64_t bytes) {
    done += bytes;
    if (progress) progress(done, checkpoint.total_bytes());
  };
  for (const checkpoint::TensorInfo* info : in_order) {
    const std::optional<DType> dtype = ReadAs(*info, scales);
    if (!dtype.has_value()) {
      read(info->bytes);
      continue;
    }
    std::vector<float> kept;
    const bool fp8 = scales.fp8.contains(info->name);
    TRY_ASSIGN(const Count count, Scan(checkpoint, *info, {*dtype, fp8 ? &kept : nullptr}, read));
    if (count.first >= 0) found.defects.push_back(Sentence(*info, *dtype, count));
    if (fp8) CheckFp8Scales(info->name, kept, &found);
  }
  return found;
}

}  // namespace trivet::engine
