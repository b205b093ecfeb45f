// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_facts.h"

#include <array>

#include "checkpoint/stored_weight.h"
#include "engine/store_weight.h"
#include "kernels/weight_format.h"

namespace trivet::engine {

plan::ElementBytes BytesOf(const OpenedModel& model, cache::KvDtype kv_dtype) {
  std::array<double, plan::kStepParts> elements{}, bytes{};
  for (const plan::SourceTensor& tensor : plan::RequiredTensors(model.geometry, model.names)) {
    if (tensor.shape.size() < 2) continue;
    const auto found = checkpoint::FindWeight(model.checkpoint, model.quant, tensor.name, tensor.shape);
    if (!found.ok()) continue;
    const kernels::WeightFormatRow& format = kernels::FormatRow(FormatOf(*found));
    const double count = static_cast<double>(found->rows) * static_cast<double>(found->cols);
    const auto part = static_cast<size_t>(tensor.part);
    elements[part] += count;
    bytes[part] +=
        count * static_cast<double>(format.unit_bytes) / static_cast<double>(format.columns * kernels::kTileRows);
  }
  const int64_t row = cache::RowBytes(kv_dtype, 0);
  plan::ElementBytes found{.cache = cache::RowBytes(kv_dtype, 1) - row, .cache_row = row};
  for (size_t part = 0; part < plan::kStepParts; ++part) {
    if (elements[part] > 0) found.matrix[part] = bytes[part] / elements[part];
  }
  const auto table = static_cast<size_t>(plan::StepPart::kEmbed), head = static_cast<size_t>(plan::StepPart::kHead);
  if (model.geometry.tied_head) found.matrix[head] = found.matrix[table];
  return found;
}

}  // namespace trivet::engine
