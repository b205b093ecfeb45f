// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

namespace trivet::model {

void Head(const Runtime& runtime, const Weights& weights, const StepView& step, std::span<const float> x,
          std::span<float> local) {
  const int64_t hidden = runtime.geometry.hidden;
  const int64_t rows = step.rows;
  if (rows == 0) return;
  const device::Workspace::Frame frame(&runtime.workspace);
  const std::span<float> picked = runtime.workspace.Take<float>(rows * hidden);
  const kernels::CopyRows::Args pick{x.data(), {1, hidden, 0}, picked.data(), {1, hidden, 0}, hidden, step.logits_rows};
  runtime.RunParallel(*runtime.kernels.copy_rows, pick, rows, rows * hidden);
  const std::span<float> h = runtime.workspace.Take<float>(rows * hidden);
  runtime.Norm(picked, weights.final_norm, h);
  runtime.LogLogitsRows(record::Site::kFinalNorm, h);
  runtime.Multiply(h, rows, weights.head, local);
  if (runtime.geometry.logit_softcap > 0) {
    runtime.MapInPlace(kernels::MapFunction::kSoftCap, static_cast<float>(runtime.geometry.logit_softcap), local);
  }
}

Status GatherLogits(const Runtime& runtime, int64_t rows, std::span<const float> local, std::span<float> logits) {
  if (rows == 0) return {};
  // Pads of the vocabulary end here: only real columns are handed on. A replicated head is the first rank's to hand on.
  const plan::VocabShard& vocab = runtime.shard.vocab;
  const bool mine = runtime.layout.partial.vocab || runtime.comm.rank() == 0;
  TRY(runtime.comm.GatherColumns({local.data(), vocab.rows, mine ? vocab.real : 0, vocab.begin}, rows,
                                 runtime.geometry.vocab, logits));
  runtime.LogCollective(record::Site::kLogits, static_cast<int64_t>(runtime.geometry.layers.size()), true);
  if (runtime.log != nullptr && !logits.empty()) {
    runtime.log->LogitsRows(record::Site::kLogits, static_cast<int64_t>(runtime.geometry.layers.size()), logits);
  }
  return {};
}

}  // namespace trivet::model
