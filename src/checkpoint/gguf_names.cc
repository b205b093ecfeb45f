// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_names.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

namespace trivet::checkpoint {
namespace {

// What happens to a tensor besides its name.
enum class Change {
  kNone,
  kRotaryRows,   // rows of queries or keys
  kValueRows,    // rows are value heads of value_dim
  kMixedRows,    // rows are queries, keys, and value heads of value_dim
  kTaps,         // likewise, and [rows, taps] is [rows, 1, taps]
  kValueCols,    // columns are value heads of value_dim
  kGateRows,     // rows are value heads of one number
  kDecay,        // likewise, and -exp of them is stored
  kMatrixOfOne,  // [n] is [1, n]
};

struct NameRow {
  std::string_view from, to;
  Change change = Change::kNone;
};

constexpr std::array<NameRow, 3> kModelNames = {
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};

// Tensors of a block, whole names and names without ".weight" or ".bias".
constexpr std::array<NameRow, 39> kBlockNames = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj", Change::kRotaryRows},
    {"attn_k", "self_attn.k_proj", Change::kRotaryRows},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj"},
    {"attn_v_b", "self_attn.v_b_proj"},
    {"attn_qkv", "linear_attn.in_proj_qkv", Change::kMixedRows},
    {"attn_gate", "linear_attn.in_proj_z", Change::kValueRows},
    {"ssm_in", "linear_attn.in_proj_qkvz"},
    {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_beta", "linear_attn.in_proj_b", Change::kGateRows},
    {"ssm_alpha", "linear_attn.in_proj_a", Change::kGateRows},
    {"ssm_conv1d", "linear_attn.conv1d", Change::kTaps},
    {"ssm_a", "linear_attn.A_log", Change::kDecay},
    {"ssm_dt.bias", "linear_attn.dt_bias", Change::kGateRows},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj", Change::kValueCols},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", Change::kMatrixOfOne},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
}};

// Stacks [experts, rows, cols], or [experts, rows] of biases: what the rows of each expert are, in equal parts.
struct StackRow {
  std::string_view from;
  std::array<std::string_view, 2> to;
};
constexpr std::array<StackRow, 4> kStacks = {{{"ffn_gate_exps", {"gate_proj"}},
                                              {"ffn_up_exps", {"up_proj"}},
                                              {"ffn_down_exps", {"down_proj"}},
                                              {"ffn_gate_up_exps", {"gate_proj", "up_proj"}}}};

// "attn_q" and ".weight" of "attn_q.weight".
struct Split {
  std::string_view stem, suffix;
};
Split SplitSuffix(std::string_view name) {
  for (const std::string_view suffix : {".weight", ".bias"}) {
    if (name.ends_with(suffix)) return {name.substr(0, name.size() - suffix.size()), suffix};
  }
  return {name, ""};
}

template <size_t N>
const NameRow* FindRow(const std::array<NameRow, N>& rows, std::string_view name) {
  for (const NameRow& row : rows) {
    if (row.from == name) return &row;
  }
  return nullptr;
}

void Apply(Change change, const GgufNaming& naming, TensorInfo* info) {
  StoredOrder values;
  if (naming.tiled_values) values = {0, naming.key_heads, naming.value_heads / naming.key_heads, naming.value_dim};
  StoredOrder gates = values, mixed = values;
  gates.run = 1;
  mixed.begin = 2 * naming.key_heads * naming.key_dim;
  std::vector<int64_t>& shape = info->shape;
  if (change == Change::kRotaryRows && naming.rotary_pairs > 0) info->row_order = {0, 2, naming.rotary_pairs, 1};
  if (change == Change::kValueRows) info->row_order = values;
  if (change == Change::kMixedRows || change == Change::kTaps) info->row_order = mixed;
  if (change == Change::kTaps && shape.size() == 2) shape.insert(shape.begin() + 1, 1);
  if (change == Change::kValueCols) info->col_order = values;
  if (change == Change::kGateRows || change == Change::kDecay) info->row_order = gates;
  info->negated_exp = change == Change::kDecay;
  if (change == Change::kMatrixOfOne && shape.size() == 1) shape.insert(shape.begin(), 1);
}

// Every part of every expert of a stack.
std::vector<TensorInfo> Unstacked(const TensorInfo& info, const std::string& layer, const StackRow& stack,
                                  std::string_view suffix) {
  std::vector<TensorInfo> parts;
  const int64_t experts = info.shape[0], halves = stack.to[1].empty() ? 1 : 2;
  for (int64_t i = 0; i < experts * halves; ++i) {
    TensorInfo part = info;
    part.name =
        fmt::format("{}mlp.experts.{}.{}{}", layer, i / halves, stack.to[static_cast<size_t>(i % halves)], suffix);
    part.shape.erase(part.shape.begin());
    part.shape[0] /= halves;
    part.bytes = info.bytes / (experts * halves);
    part.offset = info.offset + i * part.bytes;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

std::vector<TensorInfo> GgufParts(const TensorInfo& info, const GgufNaming& naming) {
  if (info.name.starts_with("rope_")) return {};
  std::vector<TensorInfo> parts(1, info);
  const auto [stem, suffix] = SplitSuffix(info.name);
  if (const NameRow* row = FindRow(kModelNames, stem)) parts[0].name = fmt::format("{}{}", row->to, suffix);
  constexpr std::string_view kBlock = "blk.";
  const size_t end = info.name.find('.', kBlock.size());
  if (!info.name.starts_with(kBlock) || end == std::string::npos) return parts;
  const std::string layer = fmt::format("model.layers.{}.", info.name.substr(kBlock.size(), end - kBlock.size()));
  const std::string_view whole = std::string_view(info.name).substr(end + 1);
  const auto [name, kind] = SplitSuffix(whole);
  for (const StackRow& stack : kStacks) {
    const bool even = info.shape.size() >= 2 && (stack.to[1].empty() || info.shape[1] % 2 == 0);
    if (stack.from == name && even && info.shape[0] > 0) return Unstacked(info, layer, stack, kind);
  }
  const NameRow* row = FindRow(kBlockNames, whole);
  const std::string_view behind = row != nullptr ? "" : kind;
  if (row == nullptr) row = FindRow(kBlockNames, name);
  if (row == nullptr) {
    parts[0].name = layer + std::string(whole);
    return parts;
  }
  const bool before_channels = naming.branch_norms && name == "ffn_norm";
  parts[0].name = fmt::format("{}{}{}", layer, before_channels ? "pre_feedforward_layernorm" : row->to, behind);
  Apply(row->change, naming, &parts[0]);
  return parts;
}

}  // namespace trivet::checkpoint
