// SPDX-License-Identifier: Apache-2.0
#include "plan/shard_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "plan/leaf.h"

namespace trivet::plan {
namespace {

// A run of rows of one source: one section of a local tensor.
struct Section {
  std::string source;
  int64_t src_row = 0;
  int64_t real = 0;      // rows copied
  int64_t local = 0;     // rows reserved, pads included
  int64_t row_step = 1;  // every such row of the source
};

LocalTensor FromSections(std::string name, Role role, int64_t cols, const std::vector<Section>& sections) {
  LocalTensor tensor;
  tensor.name = std::move(name);
  tensor.role = role;
  tensor.cols = cols;
  tensor.leaf = role == Role::kVector ? 0 : kColumnLeaf;
  for (const Section& section : sections) {
    if (section.real > 0) {
      Slice slice{section.source, section.src_row, 0, section.real, cols, tensor.rows, 0};
      slice.row_step = section.row_step;
      tensor.slices.push_back(std::move(slice));
    }
    tensor.rows += section.local;
  }
  return tensor;
}

// The same tensor with rows and columns exchanged.
LocalTensor Transposed(LocalTensor tensor) {
  std::swap(tensor.rows, tensor.cols);
  for (Slice& slice : tensor.slices) {
    std::swap(slice.dst_row, slice.dst_col);
    slice.transposed = !slice.transposed;
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

// A vector as a matrix of one column: a bias that joins a sum over K. It is row `row` of its source, or all of it.
LocalTensor BiasColumn(std::string name, std::string source, int64_t rows, int64_t row, bool is_row) {
  LocalTensor tensor;
  tensor.name = std::move(name);
  tensor.rows = rows;
  tensor.cols = 1;
  tensor.leaf = kColumnLeaf;
  Slice slice{std::move(source), row, 0, is_row ? 1 : rows, is_row ? rows : 1, 0, 0};
  slice.transposed = is_row;
  tensor.slices.push_back(std::move(slice));
  return tensor;
}

// Sections one after the other.
std::vector<Section> Joined(std::vector<std::vector<Section>> parts) {
  std::vector<Section> all;
  for (std::vector<Section>& part : parts) std::move(part.begin(), part.end(), std::back_inserter(all));
  return all;
}

// Builds the map of one rank, tensor by tensor.
class Builder {
 public:
  Builder(const Geometry& geometry, const RankShard& shard, const SourceNames& names)
      : geometry_(geometry), shard_(shard), names_(names) {}

  ShardMap Build() {
    const Stage& stage = shard_.stage;
    if (stage.first() || (stage.last && geometry_.tied_head)) {
      AddVocab("embed", Role::kEmbedding, names_.prefix + "embed_tokens.weight");
    }
    for (int64_t i = stage.begin; i < stage.end; ++i) AddLayer(static_cast<size_t>(i));
    if (stage.last) AddWhole("final_norm", names_.prefix + "norm.weight", geometry_.hidden);
    if (stage.last && !geometry_.tied_head) AddVocab("head", Role::kMatrix, names_.head);
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
  void AddVector(std::string name, const std::vector<Section>& sections) {
    Add(FromSections(std::move(name), Role::kVector, 1, sections));
  }
  void AddVocab(std::string name, Role role, std::string source) {
    const VocabShard& vocab = shard_.vocab;
    Add(FromSections(std::move(name), role, geometry_.hidden,
                     {{std::move(source), vocab.begin, vocab.real, vocab.rows}}));
  }

  void AddLayer(size_t index) {
    local_ = fmt::format("layers.{}.", index);
    source_ = fmt::format("{}layers.{}.", names_.prefix, index);
    const LayerGeometry& layer = geometry_.layers[index];
    const bool branch = geometry_.branch_norms;
    AddWhole(local_ + "input_norm", source_ + "input_layernorm.weight", geometry_.hidden);
    switch (layer.mixer) {
      case Mixer::kAttention:
        AddAttention();
        break;
      case Mixer::kLatentAttention:
        AddLatentAttention();
        break;
      case Mixer::kDeltaNet:
        AddDeltaNet();
        break;
    }
    if (branch) {
      AddWhole(local_ + "mixer_norm", source_ + "post_attention_layernorm.weight", geometry_.hidden);
      AddWhole(local_ + "channel_norm", source_ + "post_feedforward_layernorm.weight", geometry_.hidden);
    }
    AddWhole(local_ + "post_norm", source_ + (branch ? "pre_feedforward" : "post_attention") + "_layernorm.weight",
             geometry_.hidden);
    if (layer.channel_mixer == ChannelMixer::kMoe) {
      AddMoe();
    } else {
      AddGatedMlp("mlp", "mlp", {geometry_.mlp_width, shard_.mlp, geometry_.mlp.bias});
    }
  }

  // The output projection of heads of `dim` channels, and its bias on the rank of the first head.
  void AddHeadOutput(const std::string& source, int64_t dim) {
    const AttentionShard& heads = shard_.attention;
    Add(FromColumns(
        local_ + "attn.o", geometry_.hidden,
        {source + ".weight", 0, heads.q_begin * dim, heads.q_real * dim, heads.q_heads * dim, HeadLeaf(dim)}));
    if (geometry_.attention.output_bias && heads.q_begin == 0 && heads.q_real > 0) {
      Add(BiasColumn(local_ + "attn.o_bias", source + ".bias", geometry_.hidden, 0, false));
    }
  }

  void AddAttention() {
    const AttentionGeometry& attention = geometry_.attention;
    const AttentionShard& heads = shard_.attention;
    const int64_t dim = attention.head_dim;
    const int64_t query = attention.output_gate ? 2 * dim : dim;
    const std::string source = source_ + "self_attn.";
    const auto sections = [&](const char* what) -> std::vector<Section> {
      return {{source + "q_proj" + what, heads.q_begin * query, heads.q_real * query, heads.q_heads * query},
              {source + "k_proj" + what, heads.kv_begin * dim, heads.kv_real * dim, heads.kv_heads * dim},
              {source + "v_proj" + what, heads.kv_begin * dim, heads.kv_real * dim, heads.kv_heads * dim}};
    };
    Add(FromSections(local_ + "attn.qkv", Role::kMatrix, geometry_.hidden, sections(".weight")));
    if (attention.qkv_bias) AddVector(local_ + "attn.qkv_bias", sections(".bias"));
    if (attention.sinks) {
      AddVector(local_ + "attn.sinks", {{source + "sinks", heads.q_begin, heads.q_real, heads.q_heads}});
    }
    if (attention.qk_norm) {
      AddWhole(local_ + "attn.q_norm", source + "q_norm.weight", dim);
      AddWhole(local_ + "attn.k_norm", source + "k_norm.weight", dim);
    }
    AddHeadOutput(source + "o_proj", dim);
  }

  // Rows [begin, begin + dim) of a source that rotate, pairs brought to half-split order.
  std::vector<Section> Rotated(const std::string& source, int64_t begin) const {
    const int64_t dim = geometry_.latent.rope_dim;
    if (!geometry_.latent.interleaved) return {{source, begin, dim, dim}};
    return {{source, begin, dim / 2, dim / 2, 2}, {source, begin + 1, dim / 2, dim / 2, 2}};
  }

  void AddLatentAttention() {
    const LatentGeometry& latent = geometry_.latent;
    const AttentionShard& heads = shard_.attention;
    if (heads.q_heads == 0) return;
    const std::string source = source_ + "self_attn.";
    const auto down = [&](const char* what) {
      const std::string query = source + "q_a_proj" + what, key = source + "kv_a_proj_with_mqa" + what;
      return Joined({{{query, 0, latent.query_rank, latent.query_rank}, {key, 0, latent.rank, latent.rank}},
                     Rotated(key, latent.rank)});
    };
    Add(FromSections(local_ + "attn.down", Role::kMatrix, geometry_.hidden, down(".weight")));
    if (geometry_.attention.output_bias) AddVector(local_ + "attn.down_bias", down(".bias"));
    AddWhole(local_ + "attn.latent_norm", source + "kv_a_layernorm.weight", latent.rank);
    const bool direct = latent.query_rank == 0;
    if (!direct) AddWhole(local_ + "attn.query_norm", source + "q_a_layernorm.weight", latent.query_rank);
    const std::string query = source + (direct ? "q_proj" : "q_b_proj") + ".weight";
    const int64_t query_dim = geometry_.attention.head_dim;
    std::vector<Section> queries;
    for (int64_t h = heads.q_begin; h < heads.q_begin + heads.q_real; ++h) {
      queries = Joined({std::move(queries),
                        {{query, h * query_dim, latent.nope_dim, latent.nope_dim}},
                        Rotated(query, h * query_dim + latent.nope_dim)});
    }
    queries.push_back({query, 0, 0, (heads.q_heads - heads.q_real) * query_dim});
    Add(FromSections(local_ + "attn.q", Role::kMatrix, direct ? geometry_.hidden : latent.query_rank, queries));
    AddLatentUp(source);
    AddHeadOutput(source + "o_proj", latent.value_dim);
  }

  // Each head's key rows, transposed, and value rows of kv_b, or of a tensor for each that has the keys transposed.
  void AddLatentUp(const std::string& source) {
    const LatentGeometry& latent = geometry_.latent;
    const AttentionShard& heads = shard_.attention;
    LocalTensor keys = FromSections(local_ + "attn.key_up", Role::kMatrix, latent.nope_dim, {});
    LocalTensor values = FromSections(local_ + "attn.value_up", Role::kMatrix, latent.rank, {});
    for (int64_t i = 0; i < heads.q_real; ++i) {
      const int64_t head = heads.q_begin + i, row = head * (latent.nope_dim + latent.value_dim);
      const int64_t key_row = i * HeadRows(latent.rank), value_row = i * HeadRows(latent.value_dim);
      if (names_.split_latent_up) {
        keys.slices.push_back(
            {source + "k_b_proj.weight", head * latent.rank, 0, latent.rank, latent.nope_dim, key_row, 0});
        values.slices.push_back(
            {source + "v_b_proj.weight", head * latent.value_dim, 0, latent.value_dim, latent.rank, value_row, 0});
        continue;
      }
      const std::string both = source + "kv_b_proj.weight";
      keys.slices.push_back({both, row, 0, latent.nope_dim, latent.rank, key_row, 0, 1, 1, true});
      values.slices.push_back({both, row + latent.nope_dim, 0, latent.value_dim, latent.rank, value_row, 0});
    }
    keys.rows = heads.q_heads * HeadRows(latent.rank);
    values.rows = heads.q_heads * HeadRows(latent.value_dim);
    Add(std::move(keys));
    Add(std::move(values));
  }

  // Sections of `dim` rows per key head of this rank: part `at` of a group, or of the flat projection.
  struct GroupPart {
    std::string flat;         // source where projections are flat
    int64_t flat_offset = 0;  // row in it where the part begins
    std::string grouped;      // source where groups stand together; empty where projections are flat
    int64_t group_rows = 0;
    int64_t group_offset = 0;
    int64_t dim = 0;  // rows of one head
  };
  std::vector<Section> KeyHeads(const GroupPart& part) const {
    const DeltaNetShard& heads = shard_.delta_net;
    if (part.grouped.empty()) {
      return {
          {part.flat, part.flat_offset + heads.k_begin * part.dim, heads.k_real * part.dim, heads.k_heads * part.dim}};
    }
    std::vector<Section> sections;
    for (int64_t h = 0; h < heads.k_heads; ++h) {
      const int64_t row = (heads.k_begin + h) * part.group_rows + part.group_offset;
      sections.push_back({part.grouped, row, h < heads.k_real ? part.dim : 0, part.dim});
    }
    return sections;
  }
  std::vector<Section> ValueHeads(const GroupPart& part) const {
    const DeltaNetShard& heads = shard_.delta_net;
    if (part.grouped.empty()) {
      return {
          {part.flat, part.flat_offset + heads.v_begin * part.dim, heads.v_real * part.dim, heads.v_heads * part.dim}};
    }
    const int64_t ratio = geometry_.delta_net.v_heads / geometry_.delta_net.k_heads;
    std::vector<Section> sections;
    for (int64_t h = 0; h < heads.v_heads; ++h) {
      const int64_t head = heads.v_begin + h;
      const int64_t row = head / ratio * part.group_rows + part.group_offset + head % ratio * part.dim;
      sections.push_back({part.grouped, row, h < heads.v_real ? part.dim : 0, part.dim});
    }
    return sections;
  }

  void AddDeltaNet() {
    const DeltaNetGeometry& net = geometry_.delta_net;
    const DeltaNetShard& heads = shard_.delta_net;
    const std::string source = source_ + "linear_attn.";
    const std::string qkv = source + "in_proj_qkv.weight", z = source + "in_proj_z.weight";
    const std::string b = source + "in_proj_b.weight", a = source + "in_proj_a.weight";
    const std::string qkvz = names_.grouped_delta_net ? source + "in_proj_qkvz.weight" : "";
    const std::string ba = names_.grouped_gates ? source + "in_proj_ba.weight" : "";
    const std::string conv = source + "conv1d.weight";
    const int64_t dk = net.k_dim, dv = net.v_dim, keys = net.k_heads * dk, ratio = net.v_heads / net.k_heads;
    const int64_t rows = 2 * dk + 2 * ratio * dv;
    Add(FromSections(local_ + "gdn.in", Role::kMatrix, geometry_.hidden,
                     Joined({KeyHeads({qkv, 0, qkvz, rows, 0, dk}), KeyHeads({qkv, keys, qkvz, rows, dk, dk}),
                             ValueHeads({qkv, 2 * keys, qkvz, rows, 2 * dk, dv}),
                             ValueHeads({z, 0, qkvz, rows, 2 * dk + ratio * dv, dv}),
                             ValueHeads({b, 0, ba, 2 * ratio, 0, 1}), ValueHeads({a, 0, ba, 2 * ratio, ratio, 1})})));
    Add(Transposed(FromSections(local_ + "gdn.conv", Role::kVector, net.conv_width,
                                Joined({KeyHeads({conv, 0, "", 0, 0, dk}), KeyHeads({conv, keys, "", 0, 0, dk}),
                                        ValueHeads({conv, 2 * keys, "", 0, 0, dv})}))));
    AddVector(local_ + "gdn.a_log", ValueHeads({source + "A_log", 0, "", 0, 0, 1}));
    AddVector(local_ + "gdn.dt_bias", ValueHeads({source + "dt_bias", 0, "", 0, 0, 1}));
    AddWhole(local_ + "gdn.norm", source + "norm.weight", net.v_dim);
    Add(FromColumns(
        local_ + "gdn.out", geometry_.hidden,
        {source + "out_proj.weight", 0, heads.v_begin * dv, heads.v_real * dv, heads.v_heads * dv, HeadLeaf(dv)}));
  }

  void AddMoe() {
    const MoeGeometry& moe = geometry_.moe;
    const std::string from = source_ + "mlp." + names_.router;
    std::vector<Section> router = {{from + ".weight", 0, moe.experts, moe.experts}};
    const bool shared = moe.shared_width > 0;
    if (shared && moe.shared_gate) router.push_back({source_ + "mlp.shared_expert_gate.weight", 0, 1, 1});
    Add(FromSections(local_ + "moe.router", Role::kMatrix, geometry_.hidden, router));
    if (moe.router.bias) AddWhole(local_ + "moe.router_bias", from + ".bias", moe.experts);
    if (moe.router.correction) AddWhole(local_ + "moe.correction", from + ".e_score_correction_bias", moe.experts);
    for (size_t slot = 0; slot < shard_.experts.slots.size(); ++slot) {
      const int64_t expert = shard_.experts.slots[slot];
      if (expert < 0) continue;
      const std::string local = fmt::format("moe.expert.{}", slot);
      if (!names_.fused_experts) {
        AddGatedMlp(local, fmt::format("mlp.experts.{}", expert), {moe.width, shard_.experts.channels, moe.bias});
      } else {
        AddFusedExpert(local_ + local, expert);
      }
    }
    if (shared) AddGatedMlp("moe.shared", "mlp." + names_.shared_expert, {moe.shared_width, shard_.shared, false});
  }

  // One expert of tensors that hold all of a layer's.
  void AddFusedExpert(const std::string& local, int64_t expert) {
    const int64_t hidden = geometry_.hidden, width = geometry_.moe.width;
    const WidthShard& channels = shard_.experts.channels;
    const std::string source = source_ + "mlp.experts.";
    LocalTensor gate_up = FromSections(local + ".gate_up", Role::kMatrix, hidden, {});
    LocalTensor bias = FromSections(local + ".gate_up_bias", Role::kVector, 1, {});
    gate_up.rows = 2 * channels.width;
    bias.rows = geometry_.moe.bias ? 2 * channels.width : 0;
    for (int64_t part = 0; part < 2 && channels.real > 0; ++part) {
      const int64_t at = names_.alternating_experts ? 2 * channels.begin + part : part * width + channels.begin;
      const int64_t step = names_.alternating_experts ? 2 : 1, dst = part * channels.width;
      bias.slices.push_back({source + "gate_up_proj_bias", expert, at, 1, channels.real, dst, 0, 1, step, true});
      gate_up.slices.push_back(
          names_.input_major_experts
              ? Slice{source + "gate_up_proj", expert * hidden, at, hidden, channels.real, dst, 0, 1, step, true}
              : Slice{source + "gate_up_proj", expert * 2 * width + at, 0, channels.real, hidden, dst, 0, step});
    }
    Columns columns{source + "down_proj", expert * hidden, channels.begin,
                    channels.real,        channels.width,  WidthLeaf(width, geometry_.weight_block)};
    LocalTensor down = FromColumns(local + ".down", hidden, columns);
    if (names_.input_major_experts && channels.real > 0) {
      down.slices = {{columns.source, expert * width + channels.begin, 0, channels.real, hidden, 0, 0, 1, 1, true}};
    }
    Add(std::move(gate_up));
    Add(std::move(bias));
    Add(std::move(down));
    if (geometry_.moe.bias && channels.begin == 0 && channels.real > 0) {
      Add(BiasColumn(local + ".down_bias", source + "down_proj_bias", hidden, expert, true));
    }
  }

  // gate_proj, up_proj and down_proj under `source`, all cut along the width.
  struct GatedMlp {
    int64_t width = 0;
    const WidthShard& channels;
    bool bias = false;
  };
  void AddGatedMlp(const std::string& name, const std::string& source, const GatedMlp& mlp) {
    const std::string local = local_ + name, from = source_ + source;
    const WidthShard& channels = mlp.channels;
    const auto sections = [&](const char* what) -> std::vector<Section> {
      return {{from + ".gate_proj" + what, channels.begin, channels.real, channels.width},
              {from + ".up_proj" + what, channels.begin, channels.real, channels.width}};
    };
    Add(FromSections(local + ".gate_up", Role::kMatrix, geometry_.hidden, sections(".weight")));
    Add(FromColumns(local + ".down", geometry_.hidden,
                    {from + ".down_proj.weight", 0, channels.begin, channels.real, channels.width,
                     WidthLeaf(mlp.width, geometry_.weight_block)}));
    if (!mlp.bias) return;
    AddVector(local + ".gate_up_bias", sections(".bias"));
    if (channels.begin == 0 && channels.real > 0) {
      Add(BiasColumn(local + ".down_bias", from + ".down_proj.bias", geometry_.hidden, 0, false));
    }
  }

  const Geometry& geometry_;
  const RankShard& shard_;
  const SourceNames& names_;
  std::string local_;   // "layers.3."
  std::string source_;  // "model.layers.3."
  ShardMap map_;
};

}  // namespace

ShardMap MakeShardMap(const Geometry& geometry, const Layout& layout, int64_t rank, const SourceNames& names) {
  CHECK(rank >= 0 && rank < layout.world());
  return Builder(geometry, layout.ShardOf(rank), names).Build();
}

}  // namespace trivet::plan
