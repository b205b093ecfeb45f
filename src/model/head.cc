// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "model/layers.h"

namespace trivet::model {

Status Head(const Runtime& runtime, const Weights& weights, const StepView& step, std::span<const float> x,
            std::span<float> local, std::span<uint64_t> keys) {
  const int64_t hidden = runtime.geometry.hidden, layers = static_cast<int64_t>(runtime.geometry.layers.size());
  const int64_t rows = step.kept_rows;
  if (step.rows == 0) return {};
  const device::Workspace::Frame frame(&runtime.workspace);
  const std::span<float> picked = runtime.workspace.Take<float>(rows * hidden);
  const kernels::CopyRows::Args pick{x.data(), {1, hidden, 0}, picked.data(), {1, hidden, 0}, hidden, step.head_rows};
  runtime.RunParallel(*runtime.kernels.copy_rows, pick, rows, rows * hidden);
  const std::span<float> h = runtime.workspace.Take<float>(rows * hidden);
  runtime.Norm(picked, weights.final_norm, h);
  runtime.LogLogitsRows(record::Site::kFinalNorm, h);
  TRY_ASSIGN(const comm::RowsView all,
             runtime.JoinRows({record::Site::kFinalNorm, layers}, h, hidden, step.head_keepers,
                              runtime.JoinedRows(hidden, step.head_keepers)));
  runtime.MultiplyStrided(all.data, all.stride, step.rows, weights.head, local.data(), weights.head.n);
  if (runtime.geometry.logit_softcap > 0) {
    runtime.MapInPlace(kernels::MapFunction::kSoftCap, static_cast<float>(runtime.geometry.logit_softcap), local);
  }
  // Of all rows, so that steps of one size are one recording whichever of their rows ask for it.
  const plan::VocabShard& vocab = runtime.shard.vocab;
  const kernels::Argmax::Args args{local.data(), vocab.rows, vocab.real, vocab.begin, step.argmax_rows, keys.data()};
  runtime.RunParallel(*runtime.kernels.argmax, args, static_cast<int64_t>(keys.size()),
                      step.greedy * vocab.real * Runtime::kElementWork);
  return {};
}

Status GatherLogits(const Runtime& runtime, int64_t rows, std::span<const float> local, std::span<float> logits) {
  if (rows == 0) return {};
  // Pads of the vocabulary end here: only real columns are handed on. A replicated head is the first rank's to hand on.
  const plan::VocabShard& vocab = runtime.shard.vocab;
  const bool mine = runtime.layout.partial.vocab || runtime.comm.rank() == 0;
  TRY(runtime.comm.GatherColumns({local.data(), vocab.rows, mine ? vocab.real : 0, vocab.begin}, rows,
                                 runtime.geometry.vocab, logits));
  runtime.LogCollective(record::Site::kLogits, static_cast<int64_t>(runtime.geometry.layers.size()),
                        runtime.comm.last());
  if (runtime.log != nullptr && !logits.empty()) {
    runtime.log->LogitsRows(record::Site::kLogits, static_cast<int64_t>(runtime.geometry.layers.size()), logits);
  }
  return {};
}

Status GatherGreedy(const Runtime& runtime, std::span<const uint64_t> keys, std::span<uint64_t> greedy) {
  // Keys travel as the words that they are made of. A replicated head is the first rank's to hand on.
  constexpr int64_t kWords = kernels::kArgmaxParts * static_cast<int64_t>(sizeof(uint64_t) / sizeof(float));
  const auto rows = static_cast<int64_t>(keys.size()) / kernels::kArgmaxParts;
  if (rows == 0) return {};
  const int64_t rank = runtime.comm.rank(), holders = runtime.layout.partial.vocab ? runtime.comm.size() : 1;
  const int64_t columns = rank < holders ? kWords : 0;
  std::vector<float> words(rank == 0 ? static_cast<size_t>(rows * holders * kWords) : 0);
  TRY(runtime.comm.GatherColumns({reinterpret_cast<const float*>(keys.data()), kWords, columns, rank * columns}, rows,
                                 holders * kWords, words));
  if (words.empty()) return {};
  std::vector<uint64_t> parts(static_cast<size_t>(holders * kernels::kArgmaxParts));
  for (size_t row = 0; row < greedy.size(); ++row) {
    std::memcpy(parts.data(), words.data() + static_cast<int64_t>(row) * holders * kWords,
                parts.size() * sizeof(uint64_t));
    greedy[row] = *std::max_element(parts.begin(), parts.end());
  }
  return {};
}

}  // namespace trivet::model
