// SPDX-License-Identifier: Apache-2.0
#include "engine/store_weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/convert.h"

namespace trivet::engine {
namespace {

using checkpoint::Storage;

constexpr quant::BlockTraits kFp8 = quant::TraitsOf(quant::BlockFormat::kFp8);
constexpr quant::BlockTraits kMxfp4 = quant::TraitsOf(quant::BlockFormat::kMxfp4);
// Far beyond any real scale; the decoding of E4M3 keeps a factor of 2^8 aside.
constexpr float kLargestScale = 0x1p100F;

}  // namespace

kernels::WeightFormat FormatOf(const checkpoint::StoredWeight& weight) {
  if (weight.storage == Storage::kFp8) return kernels::WeightFormat::kFp8;
  if (weight.storage == Storage::kMxfp4) return kernels::WeightFormat::kMxfp4;
  const kernels::WeightFormatRow* row = kernels::FormatFor(weight.weight->dtype);
  CHECK(row != nullptr);
  return row->format;
}

quant::BlockFormat BlocksOf(const checkpoint::StoredWeight& weight) {
  if (weight.storage == Storage::kFp8) return quant::BlockFormat::kFp8;
  if (weight.storage == Storage::kMxfp4) return quant::BlockFormat::kMxfp4;
  const std::optional<quant::BlockFormat> format = quant::BlockFormatOf(weight.weight->dtype);
  CHECK(format.has_value());
  return *format == quant::BlockFormat::kMxfp4Gguf ? quant::BlockFormat::kMxfp4 : *format;
}

bool IsElement(const checkpoint::StoredWeight& weight) {
  return weight.storage == Storage::kPlain && tensor::UnitOf(weight.weight->dtype).elements == 1;
}

int64_t UnitColumns(const checkpoint::StoredWeight& weight) {
  return IsElement(weight) ? 1 : kernels::FormatRow(FormatOf(weight)).columns;
}

int64_t CodeBytes(const checkpoint::StoredWeight& weight, int64_t cols) {
  if (weight.storage == Storage::kMxfp4) return cols / 2;
  const tensor::DTypeUnit unit = tensor::UnitOf(weight.weight->dtype);
  return cols / unit.elements * unit.bytes;
}

Error RowBlocks::BadValue(const char* what) const {
  return MakeError(Code::kInvalid,
                   fmt::format("{}: expected finite weights, found {}; the checkpoint is damaged, fetch it "
                               "again",
                               weight_.weight->name, what));
}

Status RowBlocks::Start(const checkpoint::Checkpoint& checkpoint, const checkpoint::StoredWeight& weight, int64_t row,
                        int64_t rows) {
  weight_ = weight;
  if (weight.storage == Storage::kPlain) return {};
  first_scale_row_ = weight.ScaleRow(row);
  const int64_t scale_rows = weight.ScaleRow(row + rows - 1) - first_scale_row_ + 1;
  const int64_t row_bytes = weight.ScalesPerRow() * tensor::UnitOf(weight.scale->dtype).bytes;
  scale_bytes_.resize(static_cast<size_t>(scale_rows * row_bytes));
  TRY(checkpoint.Read(*weight.scale, first_scale_row_ * row_bytes, scale_bytes_));
  if (weight.storage == Storage::kMxfp4) {
    const bool nan = std::find(scale_bytes_.begin(), scale_bytes_.end(), std::byte{0xFF}) != scale_bytes_.end();
    return nan ? Status(BadValue("the scale 0xFF, which is not a number")) : Status();
  }
  scales_.resize(static_cast<size_t>(scale_rows * weight.ScalesPerRow()));
  TRY(quant::DecodeToFloat(weight.scale->dtype, scale_bytes_, scales_));
  const bool sound =
      std::all_of(scales_.begin(), scales_.end(), [](float scale) { return std::fabs(scale) <= kLargestScale; });
  return sound ? Status() : Status(BadValue("a scale that is infinite, absurdly large or not a number"));
}

Result<std::span<const std::byte>> RowBlocks::Row(int64_t row, int64_t col, int64_t cols,
                                                  std::span<const std::byte> codes, int64_t* count) {
  if (weight_.storage == Storage::kPlain) {
    *count = cols;
    if (weight_.weight->dtype != tensor::DType::kMxfp4) return codes;
    blocks_.assign(codes.begin(), codes.end());
    quant::GgufToPairs(blocks_);
    return std::span<const std::byte>(blocks_);
  }
  const bool fp8 = weight_.storage == Storage::kFp8;
  const quant::BlockTraits& traits = fp8 ? kFp8 : kMxfp4;
  const int64_t blocks = (cols + traits.columns - 1) / traits.columns;
  const int64_t scale_bytes = fp8 ? 4 : 1;
  const int64_t code_bytes = traits.bytes - scale_bytes;
  const int64_t scale_row = (weight_.ScaleRow(row) - first_scale_row_) * weight_.ScalesPerRow();
  *count = blocks * traits.columns;
  blocks_.resize(static_cast<size_t>(blocks * traits.bytes));
  for (int64_t b = 0; b < blocks; ++b) {
    std::byte* block = blocks_.data() + b * traits.bytes;
    const auto scale = static_cast<size_t>(scale_row + (col + b * traits.columns) / weight_.scale_cols);
    fp8 ? std::memcpy(block, &scales_[scale], 4) : std::memcpy(block, &scale_bytes_[scale], 1);
    const auto from = codes.subspan(static_cast<size_t>(b * code_bytes));
    const size_t there = std::min(from.size(), static_cast<size_t>(code_bytes));
    std::memcpy(block + scale_bytes, from.data(), there);
    std::memset(block + scale_bytes + there, 0, static_cast<size_t>(code_bytes) - there);  // beyond the row
  }
  if (fp8) {
    const auto is_nan = [](std::byte code) { return (code | std::byte{0x80}) == std::byte{0xFF}; };
    if (std::any_of(codes.begin(), codes.end(), is_nan)) return BadValue("an E4M3 code that is not a number");
  }
  return std::span<const std::byte>(blocks_);
}

Result<std::span<const float>> RowBlocks::Values(int64_t row, int64_t col, int64_t cols,
                                                 std::span<const std::byte> codes) {
  int64_t count = 0;
  TRY_ASSIGN(const std::span<const std::byte> bytes, Row(row, col, cols, codes, &count));
  values_.resize(static_cast<size_t>(count));
  if (!IsElement(weight_)) {
    quant::DecodeBlocks(BlocksOf(weight_), bytes, values_);
  } else {
    TRY(quant::DecodeToFloat(weight_.weight->dtype, bytes, values_));
  }
  return std::span<const float>(values_);
}

}  // namespace trivet::engine
