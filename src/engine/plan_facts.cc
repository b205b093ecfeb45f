// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_facts.h"

#include "kernels/weight_format.h"

namespace trivet::engine {

plan::ElementBytes BytesOf(const OpenedModel& model) {
  double elements = 0, bytes = 0;
  for (const plan::SourceTensor& tensor : plan::RequiredTensors(model.geometry, model.names)) {
    const checkpoint::TensorInfo* info = model.checkpoint.Find(tensor.name);
    if (info == nullptr || tensor.shape.size() < 2) continue;
    double count = 1;
    for (const int64_t extent : tensor.shape) count *= static_cast<double>(extent);
    const kernels::WeightFormatRow* format = kernels::FormatFor(info->dtype);
    elements += count;
    bytes += count * static_cast<double>(format == nullptr ? 2 : format->element_bytes);
  }
  return {elements > 0 ? bytes / elements : 2, static_cast<int64_t>(sizeof(float))};
}

}  // namespace trivet::engine
