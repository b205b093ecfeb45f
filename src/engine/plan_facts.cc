// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_facts.h"

#include "checkpoint/stored_weight.h"
#include "engine/store_weight.h"
#include "kernels/weight_format.h"

namespace trivet::engine {

plan::ElementBytes BytesOf(const OpenedModel& model, cache::KvDtype kv_dtype) {
  double elements = 0, bytes = 0;
  for (const plan::SourceTensor& tensor : plan::RequiredTensors(model.geometry, model.names)) {
    if (tensor.shape.size() < 2) continue;
    const auto found = checkpoint::FindWeight(model.checkpoint, model.quant, tensor.name, tensor.shape);
    if (!found.ok()) continue;
    const kernels::WeightFormatRow& format = kernels::FormatRow(FormatOf(*found));
    const double count = static_cast<double>(found->rows) * static_cast<double>(found->cols);
    elements += count;
    bytes += count * static_cast<double>(format.unit_bytes) / static_cast<double>(format.columns * kernels::kTileRows);
  }
  const int64_t row = cache::RowBytes(kv_dtype, 0);
  return {elements > 0 ? bytes / elements : 2, cache::RowBytes(kv_dtype, 1) - row, row};
}

}  // namespace trivet::engine
