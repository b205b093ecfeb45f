// SPDX-License-Identifier: Apache-2.0
#include "plan/shard_map.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "plan/leaf.h"

namespace trivet::plan {
namespace {

// A run of rows of one source: one section of a local tensor, all columns.
struct Section {
  std::string source;
  int64_t src_row = 0;
  int64_t real = 0;   // rows copied
  int64_t local = 0;  // rows reserved, pads included
};

LocalTensor FromSections(std::string name, Role role, int64_t cols, const std::vector<Section>& sections) {
  LocalTensor tensor;
  tensor.name = std::move(name);
  tensor.role = role;
  tensor.cols = cols;
  tensor.leaf = role == Role::kVector ? 0 : kColumnLeaf;
  for (const Section& section : sections) {
    if (section.real > 0) {
      tensor.slices.push_back({section.source, section.src_row, 0, section.real, cols, tensor.rows, 0});
    }
    tensor.rows += section.local;
  }
  return tensor;
}

// A run of columns of one source, all rows: the input side of an output projection.
struct Columns {
  std::string source;
  int64_t src_row = 0;
  int64_t src_col = 0;
  int64_t real = 0;
  int64_t local = 0;
  int64_t leaf = 0;
};

LocalTensor FromColumns(std::string name, int64_t rows, const Columns& columns) {
  LocalTensor tensor;
  tensor.name = std::move(name);
  tensor.rows = rows;
  tensor.cols = columns.local;
  tensor.leaf = columns.leaf;
  if (columns.real > 0) {
    tensor.slices.push_back({columns.source, columns.src_row, columns.src_col, rows, columns.real, 0, 0});
  }
  return tensor;
}

// Builds the map of one rank, tensor by tensor.
class Builder {
 public:
  Builder(const Geometry& geometry, const RankShard& shard, const SourceNames& names)
      : geometry_(geometry), shard_(shard), names_(names) {}

  ShardMap Build() {
    AddVocab("embed", Role::kEmbedding, names_.prefix + "embed_tokens.weight");
    for (size_t i = 0; i < geometry_.layers.size(); ++i) AddLayer(i);
    AddWhole("final_norm", names_.prefix + "norm.weight", geometry_.hidden);
    if (!geometry_.tied_head) AddVocab("head", Role::kMatrix, "lm_head.weight");
    return std::move(map_);
  }

 private:
  // Tensors without rows or columns on this rank do not exist.
  void Add(LocalTensor tensor) {
    if (tensor.rows > 0 && tensor.cols > 0) map_.tensors.push_back(std::move(tensor));
  }
  // A vector that every rank holds.
  void AddWhole(std::string name, std::string source, int64_t rows) {
    Add(FromSections(std::move(name), Role::kVector, 1, {{std::move(source), 0, rows, rows}}));
  }
  void AddVocab(std::string name, Role role, std::string source) {
    const VocabShard& vocab = shard_.vocab;
    Add(FromSections(std::move(name), role, geometry_.hidden,
                     {{std::move(source), vocab.begin, vocab.real, vocab.rows}}));
  }

  void AddLayer(size_t index) {
    local_ = fmt::format("layers.{}.", index);
    source_ = fmt::format("{}layers.{}.", names_.prefix, index);
    AddWhole(local_ + "input_norm", source_ + "input_layernorm.weight", geometry_.hidden);
    const LayerGeometry& layer = geometry_.layers[index];
    layer.mixer == Mixer::kAttention ? AddAttention() : AddDeltaNet();
    AddWhole(local_ + "post_norm", source_ + "post_attention_layernorm.weight", geometry_.hidden);
    layer.channel_mixer == ChannelMixer::kMoe ? AddMoe() : AddGatedMlp("mlp", "mlp", geometry_.mlp_width, shard_.mlp);
  }

  void AddAttention() {
    const AttentionGeometry& attention = geometry_.attention;
    const AttentionShard& heads = shard_.attention;
    const int64_t dim = attention.head_dim;
    const int64_t query = attention.output_gate ? 2 * dim : dim;
    const std::string source = source_ + "self_attn.";
    Add(FromSections(local_ + "attn.qkv", Role::kMatrix, geometry_.hidden,
                     {{source + "q_proj.weight", heads.q_begin * query, heads.q_real * query, heads.q_heads * query},
                      {source + "k_proj.weight", heads.kv_begin * dim, heads.kv_real * dim, heads.kv_heads * dim},
                      {source + "v_proj.weight", heads.kv_begin * dim, heads.kv_real * dim, heads.kv_heads * dim}}));
    if (attention.qk_norm) {
      AddWhole(local_ + "attn.q_norm", source + "q_norm.weight", dim);
      AddWhole(local_ + "attn.k_norm", source + "k_norm.weight", dim);
    }
    Add(FromColumns(
        local_ + "attn.o", geometry_.hidden,
        {source + "o_proj.weight", 0, heads.q_begin * dim, heads.q_real * dim, heads.q_heads * dim, HeadLeaf(dim)}));
  }

  void AddDeltaNet() {
    const DeltaNetGeometry& net = geometry_.delta_net;
    const DeltaNetShard& heads = shard_.delta_net;
    const std::string source = source_ + "linear_attn.";
    const int64_t keys = net.k_heads * net.k_dim;
    const auto key_section = [&](const std::string& name, int64_t offset) {
      return Section{source + name, offset + heads.k_begin * net.k_dim, heads.k_real * net.k_dim,
                     heads.k_heads * net.k_dim};
    };
    const auto value_section = [&](const std::string& name, int64_t offset, int64_t dim) {
      return Section{source + name, offset + heads.v_begin * dim, heads.v_real * dim, heads.v_heads * dim};
    };
    Add(FromSections(
        local_ + "gdn.in", Role::kMatrix, geometry_.hidden,
        {key_section("in_proj_qkv.weight", 0), key_section("in_proj_qkv.weight", keys),
         value_section("in_proj_qkv.weight", 2 * keys, net.v_dim), value_section("in_proj_z.weight", 0, net.v_dim),
         value_section("in_proj_b.weight", 0, 1), value_section("in_proj_a.weight", 0, 1)}));
    Add(FromSections(local_ + "gdn.conv", Role::kVector, net.conv_width,
                     {key_section("conv1d.weight", 0), key_section("conv1d.weight", keys),
                      value_section("conv1d.weight", 2 * keys, net.v_dim)}));
    Add(FromSections(local_ + "gdn.a_log", Role::kVector, 1, {value_section("A_log", 0, 1)}));
    Add(FromSections(local_ + "gdn.dt_bias", Role::kVector, 1, {value_section("dt_bias", 0, 1)}));
    AddWhole(local_ + "gdn.norm", source + "norm.weight", net.v_dim);
    Add(FromColumns(local_ + "gdn.out", geometry_.hidden,
                    {source + "out_proj.weight", 0, heads.v_begin * net.v_dim, heads.v_real * net.v_dim,
                     heads.v_heads * net.v_dim, HeadLeaf(net.v_dim)}));
  }

  void AddMoe() {
    const MoeGeometry& moe = geometry_.moe;
    std::vector<Section> router = {{source_ + "mlp.gate.weight", 0, moe.experts, moe.experts}};
    if (moe.shared_width > 0) router.push_back({source_ + "mlp.shared_expert_gate.weight", 0, 1, 1});
    Add(FromSections(local_ + "moe.router", Role::kMatrix, geometry_.hidden, router));
    for (size_t slot = 0; slot < shard_.experts.slots.size(); ++slot) {
      if (shard_.experts.slots[slot] >= 0) AddExpert(slot, shard_.experts.slots[slot]);
    }
    if (moe.shared_width > 0) AddGatedMlp("moe.shared", "mlp.shared_expert", moe.shared_width, shard_.shared);
  }

  void AddExpert(size_t slot, int64_t expert) {
    const std::string local = fmt::format("moe.expert.{}", slot);
    const MoeGeometry& moe = geometry_.moe;
    if (!names_.fused_experts) {
      AddGatedMlp(local, fmt::format("mlp.experts.{}", expert), moe.width, shard_.experts.channels);
      return;
    }
    const WidthShard& channels = shard_.experts.channels;
    const std::string gate_up = source_ + "mlp.experts.gate_up_proj";
    const int64_t gate = expert * 2 * moe.width + channels.begin;
    Add(FromSections(
        local_ + local + ".gate_up", Role::kMatrix, geometry_.hidden,
        {{gate_up, gate, channels.real, channels.width}, {gate_up, gate + moe.width, channels.real, channels.width}}));
    Add(FromColumns(local_ + local + ".down", geometry_.hidden,
                    {source_ + "mlp.experts.down_proj", expert * geometry_.hidden, channels.begin, channels.real,
                     channels.width, WidthLeaf(moe.width)}));
  }

  // gate_proj, up_proj and down_proj under `source`, all cut along `width`.
  void AddGatedMlp(const std::string& local, const std::string& source, int64_t width, const WidthShard& channels) {
    const std::string from = source_ + source;
    Add(FromSections(local_ + local + ".gate_up", Role::kMatrix, geometry_.hidden,
                     {{from + ".gate_proj.weight", channels.begin, channels.real, channels.width},
                      {from + ".up_proj.weight", channels.begin, channels.real, channels.width}}));
    Add(FromColumns(local_ + local + ".down", geometry_.hidden,
                    {from + ".down_proj.weight", 0, channels.begin, channels.real, channels.width, WidthLeaf(width)}));
  }

  const Geometry& geometry_;
  const RankShard& shard_;
  const SourceNames& names_;
  std::string local_;   // "layers.3."
  std::string source_;  // "model.layers.3."
  ShardMap map_;
};

void RequireAttention(const Geometry& geometry, const std::string& prefix, std::vector<SourceTensor>* out) {
  const AttentionGeometry& attention = geometry.attention;
  const int64_t hidden = geometry.hidden;
  const int64_t queries = attention.q_heads * attention.head_dim;
  const int64_t keys = attention.kv_heads * attention.head_dim;
  out->push_back({prefix + "q_proj.weight", {queries * (attention.output_gate ? 2 : 1), hidden}});
  out->push_back({prefix + "k_proj.weight", {keys, hidden}});
  out->push_back({prefix + "v_proj.weight", {keys, hidden}});
  out->push_back({prefix + "o_proj.weight", {hidden, queries}});
  if (attention.qk_norm) {
    out->push_back({prefix + "q_norm.weight", {attention.head_dim}});
    out->push_back({prefix + "k_norm.weight", {attention.head_dim}});
  }
}

void RequireDeltaNet(const Geometry& geometry, const std::string& prefix, std::vector<SourceTensor>* out) {
  const DeltaNetGeometry& net = geometry.delta_net;
  const int64_t hidden = geometry.hidden;
  const int64_t values = net.v_heads * net.v_dim;
  const int64_t mixed = 2 * net.k_heads * net.k_dim + values;
  out->push_back({prefix + "in_proj_qkv.weight", {mixed, hidden}});
  out->push_back({prefix + "in_proj_z.weight", {values, hidden}});
  out->push_back({prefix + "in_proj_b.weight", {net.v_heads, hidden}});
  out->push_back({prefix + "in_proj_a.weight", {net.v_heads, hidden}});
  out->push_back({prefix + "conv1d.weight", {mixed, 1, net.conv_width}});
  out->push_back({prefix + "A_log", {net.v_heads}});
  out->push_back({prefix + "dt_bias", {net.v_heads}});
  out->push_back({prefix + "norm.weight", {net.v_dim}});
  out->push_back({prefix + "out_proj.weight", {hidden, values}});
}

void RequireGatedMlp(int64_t hidden, int64_t width, const std::string& prefix, std::vector<SourceTensor>* out) {
  out->push_back({prefix + "gate_proj.weight", {width, hidden}});
  out->push_back({prefix + "up_proj.weight", {width, hidden}});
  out->push_back({prefix + "down_proj.weight", {hidden, width}});
}

void RequireMoe(const Geometry& geometry, bool fused, const std::string& prefix, std::vector<SourceTensor>* out) {
  const MoeGeometry& moe = geometry.moe;
  out->push_back({prefix + "gate.weight", {moe.experts, geometry.hidden}});
  if (fused) {
    out->push_back({prefix + "experts.gate_up_proj", {moe.experts, 2 * moe.width, geometry.hidden}});
    out->push_back({prefix + "experts.down_proj", {moe.experts, geometry.hidden, moe.width}});
  } else {
    for (int64_t e = 0; e < moe.experts; ++e) {
      RequireGatedMlp(geometry.hidden, moe.width, fmt::format("{}experts.{}.", prefix, e), out);
    }
  }
  if (moe.shared_width > 0) {
    out->push_back({prefix + "shared_expert_gate.weight", {1, geometry.hidden}});
    RequireGatedMlp(geometry.hidden, moe.shared_width, prefix + "shared_expert.", out);
  }
}

}  // namespace

std::vector<SourceTensor> RequiredTensors(const Geometry& geometry, const SourceNames& names) {
  std::vector<SourceTensor> out;
  out.push_back({names.prefix + "embed_tokens.weight", {geometry.vocab, geometry.hidden}});
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    const std::string prefix = fmt::format("{}layers.{}.", names.prefix, i);
    out.push_back({prefix + "input_layernorm.weight", {geometry.hidden}});
    if (geometry.layers[i].mixer == Mixer::kAttention) {
      RequireAttention(geometry, prefix + "self_attn.", &out);
    } else {
      RequireDeltaNet(geometry, prefix + "linear_attn.", &out);
    }
    out.push_back({prefix + "post_attention_layernorm.weight", {geometry.hidden}});
    if (geometry.layers[i].channel_mixer == ChannelMixer::kMoe) {
      RequireMoe(geometry, names.fused_experts, prefix + "mlp.", &out);
    } else {
      RequireGatedMlp(geometry.hidden, geometry.mlp_width, prefix + "mlp.", &out);
    }
  }
  out.push_back({names.prefix + "norm.weight", {geometry.hidden}});
  if (!geometry.tied_head) out.push_back({"lm_head.weight", {geometry.vocab, geometry.hidden}});
  return out;
}

ShardMap MakeShardMap(const Geometry& geometry, const Layout& layout, int64_t rank, const SourceNames& names) {
  CHECK(rank >= 0 && rank < static_cast<int64_t>(layout.shards.size()));
  return Builder(geometry, layout.shards[static_cast<size_t>(rank)], names).Build();
}

}  // namespace trivet::plan
