// SPDX-License-Identifier: Apache-2.0
// ShardMap: which rectangles of which checkpoint tensors one rank's local tensors consist of. Padding, overlap, uneven
// cuts and replication are all the same thing here: rectangles. What no rectangle covers keeps its neutral fill.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/geometry.h"
#include "plan/layout.h"
#include "plan/source_names.h"

namespace trivet::plan {

/// One copy: rows x cols elements of the source tensor seen as a matrix, every row_step-th row and col_step-th column,
/// to a place in the local tensor, where a transposed slice stands with rows and columns exchanged. A source of shape
/// [d0, d1, ..., dn] is seen as [d0 * ... * d(n-1), dn], one of shape [d0] as [d0, 1], and one whose last extents are
/// [.., 1, K] (depthwise taps) as [.., K], which is the same rule.
struct Slice {
  std::string source;
  int64_t src_row = 0, src_col = 0;
  int64_t rows = 0, cols = 0;  // of the source
  int64_t dst_row = 0, dst_col = 0;
  int64_t row_step = 1, col_step = 1;
  bool transposed = false;

  int64_t dst_rows() const { return transposed ? cols : rows; }
  int64_t dst_cols() const { return transposed ? rows : cols; }
};

/// What a local tensor is used for, which decides how it is stored.
enum class Role {
  kMatrix,     // weight of a product: packed for the gemm kernels in the checkpoint's own precision
  kEmbedding,  // looked up by row, and perhaps also a matrix (tied head)
  kVector,     // float32 parameters: norms, biases, decay, convolution taps
};

/// One tensor of one rank.
struct LocalTensor {
  std::string name;  // "layers.3.attn.qkv"
  Role role = Role::kMatrix;
  int64_t rows = 0, cols = 0;  // local, pads included
  int64_t leaf = 0;            // leaf length along cols for kMatrix and kEmbedding
  std::vector<Slice> slices;
};

/// Names of one layer's local tensors (prefix "layers.<i>."), as the model binds them:
///   input_norm [H,1], post_norm [H,1] (before the channel mixer)
///   mixer_norm [H,1], channel_norm [H,1]  (of the branches' outputs, where the family has them)
///   attn.qkv   rows [q_heads x (2 or 1) x D | kv_heads x D keys | kv_heads x D values], cols H
///   attn.qkv_bias [the same rows,1], attn.sinks [q_heads,1], attn.q_norm [D,1], attn.k_norm [D,1]
///   attn.o     rows H, cols q_heads x D                                   (leaf HeadLeaf(D))
///   attn.down  rows [query_rank | rank | rope_dim], cols H, attn.down_bias; attn.query_norm, attn.latent_norm
///   attn.q     rows q_heads x [nope_dim | rope_dim], cols query_rank or H
///   attn.key_up    rows q_heads x rank, each head's filled up to whole tiles; cols nope_dim
///   attn.value_up  rows q_heads x value_dim, each head's filled up to whole tiles; cols rank
///   gdn.in     rows [k_heads x dk queries | k_heads x dk keys | v_heads x dv values | v_heads x dv gates z |
///              v_heads b | v_heads a], cols H
///   gdn.conv   rows conv_width, cols [queries | keys | values as in gdn.in]: vectors run over channels
///   gdn.a_log, gdn.dt_bias [v_heads,1], gdn.norm [dv,1]
///   gdn.out    rows H, cols v_heads x dv                                  (leaf HeadLeaf(dv))
///   moe.router rows [E | 1 shared gate if the shared expert has one], cols H
///   moe.router_bias [E,1], moe.correction [E,1]
///   moe.expert.<slot>.gate_up  rows [width gate | width up], cols H
///   moe.expert.<slot>.down     rows H, cols width                         (leaf WidthLeaf(moe width))
///   moe.shared.gate_up, moe.shared.down                                   (leaf WidthLeaf(shared width))
///   mlp.gate_up, mlp.down                                                 (leaf WidthLeaf(mlp width))
///   ...gate_up_bias [the rows of gate_up,1]
/// A bias of a cut sum is one more column of it, met by an input of 1: attn.o_bias and ...down_bias, rows H, cols 1, on
/// the rank that holds the first unit of the axis. For the model: embed (rows V_local, kEmbedding), head (rows V_local,
/// only when not tied), final_norm: in the stages that they belong to, where a tied head is the last stage's embed.
/// Tensors with zero rows or zero cols on this rank are left out, and so are dummy expert slots.
struct ShardMap {
  std::vector<LocalTensor> tensors;
};

/// The local tensors of `rank`.  Ranks: pure function, no communication.
ShardMap MakeShardMap(const Geometry& geometry, const Layout& layout, int64_t rank, const SourceNames& names);

}  // namespace trivet::plan
