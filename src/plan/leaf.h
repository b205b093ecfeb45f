// SPDX-License-Identifier: Apache-2.0
// The leaf rule of exact numerics: where a sum over K may be interrupted. A function of the model alone.
#pragma once

#include <cstdint>

namespace trivet::plan {

/// Leaf length of products whose K axis no rank cuts (hidden width), in channels.
inline constexpr int64_t kColumnLeaf = 256;

/// Leaf length along a channel axis of `width` that ranks may cut (expert, shared-expert and MLP widths): the largest
/// power of two up to 128, or up to `block`, that divides it, so that no leaf is ragged; 16 when none of at least 16
/// does, and then the last leaf is filled up with zeros.
///   block   columns that share scales in the checkpoint's weights, a power of two: where it divides the width, leaves
///   are
///           whole blocks and no cut parts one
int64_t WidthLeaf(int64_t width, int64_t block = 1);

/// Leaf length along a head axis: whole heads, so any cut between heads falls on a border. Heads wider than 256
/// channels are halved until they are not.
int64_t HeadLeaf(int64_t head_dim);

/// Output rows that the gemm kernels store side by side.
inline constexpr int64_t kRowTile = 32;

/// Rows of one head in a tensor whose heads are multiplied one by one: filled up to whole tiles.
constexpr int64_t HeadRows(int64_t rows) { return (rows + kRowTile - 1) / kRowTile * kRowTile; }

}  // namespace trivet::plan
