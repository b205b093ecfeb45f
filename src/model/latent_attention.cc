// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "model/layers.h"
#include "plan/leaf.h"

namespace trivet::model {
namespace {

static_assert(plan::kRowTile == kernels::kTileRows, "heads are filled up to the tiles of the product");

// The norms inside the layer have an epsilon of their own.
constexpr double kLatentEps = 1e-6;

// The `rows` rows of head `h` in a matrix whose heads begin at whole tiles. It has one source, so one part.
Matrix HeadOf(const Matrix& all, int64_t h, int64_t rows) {
  CHECK(all.parts.size() == 1);
  kernels::PackedMatrix head = all.parts[0].packed;
  head.n = rows;
  head.data += h * (plan::HeadRows(rows) / plan::kRowTile) * head.tile_bytes();
  return {rows, all.k, {{head, 0}}};
}

// What one layer has of every token: [query_rank | latent, rope_dim rotated], `stride` apart.
struct Compressed {
  float* query;
  float* key;
  int64_t stride;
};

Compressed Compress(const Runtime& runtime, const LatentWeights& weights, const LayerPlace& place, const StepView& step,
                    std::span<const float> x) {
  const plan::LatentGeometry& latent = runtime.geometry.latent;
  const int64_t tokens = step.tokens;
  const int64_t stride = weights.down.n;
  const std::span<float> down = runtime.workspace.Take<float>(tokens * stride);
  runtime.Multiply(x, tokens, weights.down, down);
  runtime.AddBias(weights.down_bias, tokens, stride, down);
  float* key = down.data() + latent.query_rank;
  runtime.NormInPlace(down.data(), {1, stride, 0}, tokens, {weights.query_norm, latent.query_rank, kLatentEps, 0});
  runtime.NormInPlace(key, {1, stride, 0}, tokens, {weights.latent_norm, latent.rank, kLatentEps, 0});
  Rotate(runtime, step, place.layer.rope, key + latent.rank, {1, stride, 0});
  return {down.data(), key, stride};
}

// Queries in the channels of cached keys: [T, q_heads, rank + rope_dim].
std::span<float> Queries(const Runtime& runtime, const LatentWeights& weights, const LayerPlace& place,
                         const StepView& step, std::span<const float> x, const Compressed& compressed) {
  const plan::LatentGeometry& latent = runtime.geometry.latent;
  const int64_t tokens = step.tokens;
  const int64_t heads = runtime.shard.attention.q_heads;
  const int64_t dim = runtime.geometry.attention.head_dim, key_dim = runtime.geometry.key_dim();
  const std::span<float> queries = runtime.workspace.Take<float>(tokens * heads * key_dim);
  const std::span<float> q = runtime.workspace.Take<float>(tokens * heads * dim);
  if (latent.query_rank > 0) {
    runtime.MultiplyStrided(compressed.query, compressed.stride, tokens, weights.q, q.data(), heads * dim);
  } else {
    runtime.Multiply(x, tokens, weights.q, q);
  }
  Rotate(runtime, step, place.layer.rope, q.data() + latent.nope_dim, {heads, heads * dim, dim});
  for (int64_t h = 0; h < heads; ++h) {
    const float* from = q.data() + h * dim;
    float* to = queries.data() + h * key_dim;
    runtime.MultiplyStrided(from, heads * dim, tokens, HeadOf(weights.key_up, h, latent.rank), to, heads * key_dim);
  }
  const kernels::CopyRows::Args rotated{q.data() + latent.nope_dim,
                                        {heads, heads * dim, dim},
                                        queries.data() + latent.rank,
                                        {heads, heads * key_dim, key_dim},
                                        latent.rope_dim};
  runtime.RunParallel(*runtime.kernels.copy_rows, rotated, tokens * heads, tokens * heads * latent.rope_dim);
  return queries;
}

}  // namespace

Status LatentAttentionLayer(const Runtime& runtime, const LatentWeights& weights, const LayerPlace& place,
                            const StepView& step, std::span<const float> x, const Sums& sums) {
  const plan::LatentGeometry& latent = runtime.geometry.latent;
  const plan::AttentionShard& shard = runtime.shard.attention;
  if (shard.q_heads == 0) {
    runtime.LogCollective(record::Site::kShown, place.number, {});  // nothing to show
    return {};
  }
  const device::Workspace::Frame frame(&runtime.workspace);
  const int64_t tokens = step.tokens;
  const int64_t heads = shard.q_heads, key_dim = runtime.geometry.key_dim();

  const Compressed compressed = Compress(runtime, weights, place, step, x);
  const kernels::KvPages cache = KvPagesOf(runtime, place, 1, key_dim, latent.rank);
  TRY(StoreKv(runtime, step, place, cache, {compressed.key, compressed.stride}));
  const std::span<float> queries = Queries(runtime, weights, place, step, x, compressed);
  const std::span<float> mixed = runtime.workspace.Take<float>(tokens * heads * latent.rank);  // [T, q_heads * rank]
  kernels::Attention::Args args;
  args.q = queries.data();
  args.q_stride = heads * key_dim;
  args.q_head_stride = key_dim;
  args.q_heads = heads;
  args.q_to_kv = runtime.tables.q_to_kv;
  args.cache = cache;
  args.out = mixed.data();
  Attend(runtime, step, place, args);

  const std::span<float> out = runtime.workspace.Take<float>(tokens * heads * latent.value_dim);
  for (int64_t h = 0; h < heads; ++h) {
    runtime.MultiplyStrided(mixed.data() + h * latent.rank, heads * latent.rank, tokens,
                            HeadOf(weights.value_up, h, latent.value_dim), out.data() + h * latent.value_dim,
                            heads * latent.value_dim);
  }
  runtime.MultiplyAdd(out, tokens, weights.o, {}, sums);
  runtime.AddBias(weights.o_bias, tokens, {}, sums);
  return {};
}

}  // namespace trivet::model
