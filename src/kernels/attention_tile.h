// SPDX-License-Identifier: Apache-2.0
// The two ways of attention on a GPU: a query a block, for decoding, and tiles of queries, for prompts. Both give the
// same bits; which one serves a span is decided by its tokens.
#pragma once

#include "kernels/attention.h"

namespace trivet::kernels {

/// Spans of at least so many tokens go by tiles, where a step may have one. A tile's block walks all pages alone: fewer
/// tokens would leave most of a device without work.
inline constexpr int64_t kTileTokens = 32;

/// Whether tiles serve the cache on the calling thread's device: the sizes of its heads, and room for a tile.
bool TilesServe(const KvPages& cache);

/// Tokens of which the item range has items.
constexpr int64_t TokensOf(const Attention::Args& args) {
  return (args.end + args.cache.kv_heads - 1) / args.cache.kv_heads - args.begin / args.cache.kv_heads;
}

/// Attention of the spans of at least kTileTokens tokens. Needs TilesServe and at least one item.
void AttentionByTiles(const Attention::Args& args);

/// Attention of the spans of fewer tokens than kTileTokens, or of all. Needs at least one item.
void AttentionByQueries(const Attention::Args& args, bool all);

}  // namespace trivet::kernels
