// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

namespace trivet::model {

Status Embed(const Runtime& runtime, const Matrix& table, const StepView& step, std::span<float> x) {
  kernels::Embed::Args args;
  CHECK(table.parts.size() <= 1);
  // A rank whose share of the table is empty writes zeros.
  kernels::PackedMatrix rows = table.parts.empty() ? kernels::PackedMatrix{} : table.parts[0].packed;
  rows.k = runtime.geometry.hidden;
  args.table = &rows;
  args.first_id = runtime.shard.vocab.begin;
  args.real = runtime.shard.vocab.real;
  args.tokens = step.ids;
  args.x = x.data();
  const int64_t hidden = runtime.geometry.hidden;
  runtime.RunParallel(*runtime.kernels.embed, args, step.tokens, step.tokens * hidden * Runtime::kElementWork);
  std::span<uint32_t> bits(reinterpret_cast<uint32_t*>(x.data()), x.size());
  if (runtime.layout.partial.vocab) {
    // One rank's bit patterns, zeros elsewhere: an integer sum puts them together without rounding.
    TRY_ASSIGN(bits, runtime.comm.ReduceRows(bits, hidden, step.keepers));
  } else {
    bits = runtime.comm.OwnRows(bits, hidden, step.keepers);
  }
  const std::span<float> kept = x.first(bits.size());
  if (runtime.geometry.embed_scale != 1) {
    runtime.MapInPlace(kernels::MapFunction::kScale, static_cast<float>(runtime.geometry.embed_scale), kept);
  }
  runtime.LogCollective(record::Site::kEmbed, record::kBeforeLayers, runtime.comm.last());
  runtime.LogRows(record::Site::kEmbed, record::kBeforeLayers, kept);
  return {};
}

}  // namespace trivet::model
