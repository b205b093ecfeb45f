// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include "model/layers.h"

namespace trivet::model {
namespace {

// The best tokens of all ranks, on the first, from the parts of this rank's rows. Keys travel as the words that they
// are made of. A replicated head is the first rank's to hand on.
Status GatherBest(const Runtime& runtime, std::span<const uint64_t> parts, std::span<uint64_t> best) {
  constexpr int64_t kWords = sizeof(uint64_t) / sizeof(float);
  const auto rows = static_cast<int64_t>(parts.size()) / kernels::kArgmaxParts;
  const int64_t rank = runtime.comm.rank(), holders = runtime.layout.partial.vocab ? runtime.comm.size() : 1;
  const int64_t columns = rank < holders ? kWords : 0;
  std::vector<uint64_t> own, all(rank == 0 ? static_cast<size_t>(rows * holders) : 0);
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = parts.begin() + row * kernels::kArgmaxParts;
    own.push_back(*std::max_element(first, first + kernels::kArgmaxParts));
  }
  const comm::ColumnRange range{reinterpret_cast<const float*>(own.data()), kWords, columns, rank * columns, true};
  const std::span<float> words(reinterpret_cast<float*>(all.data()), all.size() * kWords);
  TRY(runtime.comm.GatherColumns(range, rows, holders * kWords, words));
  for (size_t row = 0; row < best.size(); ++row) {
    const auto first = all.begin() + static_cast<int64_t>(row) * holders;
    best[row] = *std::max_element(first, first + holders);
  }
  return {};
}

// Draws from whole rows, a key each, wherever they come together. `keys` are the host's, the best tokens' at first.
class WholeRowDraws {
 public:
  WholeRowDraws(const Runtime& runtime, const StepView& step, std::span<uint64_t> keys)
      : runtime_(runtime), step_(step), keys_(keys), numbers_(keys.size()) {
    std::iota(numbers_.begin(), numbers_.end(), 0);
    const auto count = static_cast<int64_t>(keys.size());
    if (runtime.device.backend() == Backend::kCpu || count == 0) return;
    there_keys_ = runtime.workspace.Take<uint64_t>(count).data();
    there_numbers_ = runtime.workspace.Take<int32_t>(count).data();
    runtime.device.Upload(there_keys_, keys.data(), static_cast<int64_t>(keys.size_bytes()));
    runtime.device.Upload(there_numbers_, numbers_.data(), count * static_cast<int64_t>(sizeof(int32_t)));
  }

  // From `count` rows in memory of `where`, of the drawn rows those from `first` on.
  void Draw(const float* rows, int64_t first, int64_t count, Backend where) {
    const int64_t vocab = runtime_.geometry.vocab;
    kernels::Draw::Args args{
        rows, vocab, vocab, numbers_.data(), step_.drawn_rules.data() + first, keys_.data() + first};
    if (where != Backend::kCpu) {
      on_device_ = true;
      args.rows = there_numbers_;
      args.rules = step_.rules + step_.rows - step_.drawn + first;
      args.keys = there_keys_ + first;
      args.end = count;
      return runtime_.kernels.draw->run(args);
    }
    const kernels::KernelRow<kernels::Draw>* row = runtime_.kernels.draw;
    if (runtime_.device.backend() != Backend::kCpu) row = kernels::Select<kernels::Draw>(kernels::CpuTarget(), "");
    runtime_.pool.ParallelFor(
        count, 1,
        [&](int64_t begin, int64_t end) {
          kernels::Draw::Args part = args;
          part.begin = begin;
          part.end = end;
          row->run(part);
        },
        runtime_.comm.tick());
  }

  // Brings what was drawn to the host.
  void Finish() const {
    if (on_device_) runtime_.device.Download(keys_.data(), there_keys_, static_cast<int64_t>(keys_.size_bytes()));
  }

 private:
  const Runtime& runtime_;
  const StepView& step_;
  const std::span<uint64_t> keys_;
  std::vector<int32_t> numbers_;  // of rows in a piece
  uint64_t* there_keys_ = nullptr;
  int32_t* there_numbers_ = nullptr;
  bool on_device_ = false;
};

}  // namespace

bool HeadDraws(const Runtime& runtime, const StepView& step) {
  return step.ruled > 0 && (runtime.comm.size() == 1 || !runtime.layout.partial.vocab);
}

Status Head(const Runtime& runtime, const Weights& weights, const StepView& step, std::span<const float> x,
            const HeadOutput& output) {
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
  runtime.MultiplyStrided(all.data, all.stride, step.rows, weights.head, output.local.data(), weights.head.n);
  if (runtime.geometry.logit_softcap > 0) {
    runtime.MapInPlace(kernels::MapFunction::kSoftCap, static_cast<float>(runtime.geometry.logit_softcap),
                       output.local);
  }
  // Of all rows, so that steps of one size are one recording whichever of their rows ask for it.
  const plan::VocabShard& vocab = runtime.shard.vocab;
  const kernels::Argmax::Args args{output.local.data(), vocab.rows,       vocab.real,
                                   vocab.begin,         step.argmax_rows, output.keys.data()};
  runtime.RunParallel(*runtime.kernels.argmax, args, static_cast<int64_t>(output.keys.size()),
                      step.drawn * vocab.real * Runtime::kElementWork);
  if (!HeadDraws(runtime, step)) return {};
  const kernels::Draw::Args draw{output.local.data(), vocab.rows,         vocab.real,           step.argmax_rows,
                                 step.rules,          output.keys.data(), kernels::kArgmaxParts};
  runtime.RunParallel(*runtime.kernels.draw, draw, step.rows, step.ruled * vocab.real * Runtime::kElementWork);
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

Status GatherDrawn(const Runtime& runtime, const StepView& step, std::span<const float> logits,
                   std::span<const uint64_t> keys, std::span<uint64_t> drawn) {
  if (step.drawn == 0) return {};
  TRY(GatherBest(runtime, keys, drawn));
  if (step.ruled == 0 || HeadDraws(runtime, step)) return {};
  const device::Workspace::Frame frame(&runtime.workspace);
  WholeRowDraws draws(runtime, step, drawn);
  const plan::VocabShard& vocab = runtime.shard.vocab;
  const float* local = logits.data() + (step.rows - step.drawn) * vocab.rows;
  // Runs of rows whose token need not be the best.
  for (int64_t begin = 0, end = 0; begin < step.drawn; begin = end) {
    const auto takes_best = [&](int64_t row) { return step.drawn_rules[static_cast<size_t>(row)].TakesBest(); };
    end = begin + 1;
    if (takes_best(begin)) continue;
    while (end < step.drawn && !takes_best(end)) ++end;
    TRY(runtime.comm.GatherColumns({local + begin * vocab.rows, vocab.rows, vocab.real, vocab.begin}, end - begin,
                                   runtime.geometry.vocab,
                                   [&](const float* rows, int64_t first, int64_t count, Backend where) {
                                     draws.Draw(rows, begin + first, count, where);
                                   }));
  }
  draws.Finish();
  return {};
}

}  // namespace trivet::model
