// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/elementary.h"
#include "model/layers.h"

namespace trivet::model {

Status Head(const Runtime& runtime, const Weights& weights, const StepView& step, std::span<const float> x,
            std::span<float> logits) {
  const int64_t hidden = runtime.geometry.hidden;
  const auto rows = static_cast<int64_t>(step.logits_rows.size());
  if (rows == 0) return {};
  const device::Workspace::Frame frame(&runtime.workspace);
  const std::span<float> picked = runtime.workspace.Take<float>(rows * hidden);
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(x.begin() + step.logits_rows[static_cast<size_t>(i)] * hidden, hidden, picked.begin() + i * hidden);
  }
  const std::span<float> h = runtime.workspace.Take<float>(rows * hidden);
  runtime.Norm(picked, weights.final_norm, h);
  const int64_t local_rows = weights.head.n;
  const std::span<float> local = runtime.workspace.Take<float>(rows * local_rows);  // [L, V_local], pads included
  runtime.Multiply(h, rows, weights.head, local);
  if (runtime.geometry.logit_softcap > 0) {
    const auto cap = static_cast<float>(runtime.geometry.logit_softcap);
    for (float& logit : local) logit = kernels::SoftCap<kernels::ScalarOps>(logit, cap);
  }
  // Pads of the vocabulary end here: only real columns are handed on. A replicated head is rank 0's to hand on.
  const plan::VocabShard& vocab = runtime.shard.vocab;
  const bool mine = runtime.layout.partial.vocab || runtime.comm.rank() == 0;
  if (runtime.flags != nullptr) runtime.comm.SetReport(runtime.flags->load(std::memory_order_relaxed));
  TRY(runtime.comm.GatherColumns({local.data(), local_rows, mine ? vocab.real : 0, vocab.begin}, rows,
                                 runtime.geometry.vocab, logits));
  if (runtime.sites != nullptr && !logits.empty())
    runtime.sites->Add("logits", record::kNoLayer, std::as_bytes(logits));
  return {};
}

}  // namespace trivet::model
