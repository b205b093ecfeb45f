// SPDX-License-Identifier: Apache-2.0
// One rank of a made-up model in memory, for tests of single layers: no checkpoint and no peers.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "kernels/weight_format.h"
#include "model/layers.h"
#include "model/model.h"
#include "plan/families.h"
#include "plan/shard_map.h"
#include "quant/convert.h"

namespace trivet::model {

/// Rotation of `rotary_dim` channels by powers of 10000.
inline plan::RopeTable TestRope(int64_t rotary_dim) {
  plan::RopeTable table;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    table.frequencies.push_back(static_cast<float>(std::pow(10000.0, exponent)));
  }
  return table;
}

/// A geometry with one attention layer, one delta-net layer, experts and a shared expert.
inline plan::Geometry SmallGeometry() {
  plan::Geometry geometry;
  geometry.family = "qwen3_5_moe";
  geometry.hidden = 48;
  geometry.vocab = 70;
  geometry.max_positions = 128;
  geometry.norm_eps = 1e-6;
  geometry.norm_offset = 1;
  geometry.tied_head = false;
  geometry.layers = {{plan::Mixer::kDeltaNet, plan::ChannelMixer::kMoe},
                     {plan::Mixer::kAttention, plan::ChannelMixer::kMoe}};
  geometry.attention = {4, 2, 16, 8, true, true};
  geometry.ropes = {TestRope(8)};
  geometry.delta_net = {2, 4, 16, 16, 4};
  geometry.moe = {5, 2, 48, 32};
  return geometry;
}

/// The same with latent attention in place of attention.
inline plan::Geometry SmallLatentGeometry() {
  plan::Geometry geometry = SmallGeometry();
  geometry.layers[1].mixer = plan::Mixer::kLatentAttention;
  geometry.latent = {24, 40, 12, 8, 20, true};
  geometry.attention = {};
  geometry.attention.q_heads = 4;
  geometry.attention.kv_heads = 1;
  geometry.attention.head_dim = 20;
  geometry.attention.rotary_dim = 8;
  geometry.attention.scale = 0.2;
  return geometry;
}

/// The same with a plain MLP in every layer.
inline plan::Geometry SmallDenseGeometry() {
  plan::Geometry geometry = SmallGeometry();
  for (plan::LayerGeometry& layer : geometry.layers) layer.channel_mixer = plan::ChannelMixer::kMlp;
  geometry.moe = {};
  geometry.mlp_width = 80;
  return geometry;
}

/// The value of one element of a source tensor: a function of its place, so that every layout has the same model.
inline float SourceValue(const std::string& source, int64_t row, int64_t col) {
  const std::string place = source + '/' + std::to_string(row) + '/' + std::to_string(col);
  const uint64_t hash = Hash64(std::as_bytes(std::span(place)));
  const float value = static_cast<float>(static_cast<int32_t>(hash >> 32)) * 0x1p-33F;  // -0.25 to 0.25
  return quant::FromBF16(quant::ToBF16(value));
}

/// Which rank a fixture is, and what it has.
struct FixtureOptions {
  int64_t rank = 0;
  int64_t tokens = 1;  // the longest step
  bool alone =
      false;  // in a group of one, where collectives leave the rank's part as it is; else they must not be called
  bool zeros = false;        // all weights are zero
  bool log = false;          // keep a log; RunLog::BeginStep is then to be called first
  bool adds_floats = false;  // ranks do, though each adds integers: fast numerics as on a GPU
};

/// Everything that one rank needs to run layers. Not movable: the runtime refers to its parts.
class RankFixture {
 public:
  RankFixture(plan::Geometry geometry, plan::Layout layout, const FixtureOptions& options)
      : geometry_(std::move(geometry)),
        layout_(std::move(layout)),
        shard_(layout_.shards[static_cast<size_t>(options.rank)]),
        group_(std::move(comm::Group::Make({.ranks = options.alone ? 1 : layout_.ranks})).value()),
        comm_(group_.get(), options.alone ? 0 : options.rank),
        context_group_(std::move(comm::Group::Make({})).value()),
        context_(context_group_.get(), 0),
        tables_(std::move(Tables::Make(device_, geometry_, shard_, {options.tokens, options.tokens, 8})).value()),
        workspace_(
            std::move(device::Buffer::Make(
                          device_,
                          // Tests stage several steps.
                          4 * Model::WorkspaceBytes(geometry_, shard_, {options.tokens, options.tokens, 8}), "scratch"))
                .value()),
        caches_(std::move(cache::Caches::Make(device_, geometry_, shard_, {8, 2})).value()),
        kernels_(std::move(kernels::SelectKernels(kernels::CpuTarget(), {})).value()),
        log_({record::Level::kFull,
              {},
              geometry_.moe.top_k,
              std::vector<record::Address>(static_cast<size_t>(geometry_.moe.experts)),
              0}),
        runtime_{geometry_,
                 layout_,
                 shard_,
                 kernels_,
                 kernels::Numerics::kExact,
                 options.adds_floats,
                 device_,
                 tables_,
                 comm_,
                 context_,
                 // Tests have one stage.
                 {comm_, comm_.rank(), comm_.rank()},
                 pool_,
                 workspace_,
                 caches_,
                 options.log ? &log_ : nullptr},
        weights_(std::move(Weights::Bind(device_, geometry_, shard_, Load(options))).value()) {}
  RankFixture(const RankFixture&) = delete;
  RankFixture& operator=(const RankFixture&) = delete;

  const Runtime& runtime() const { return runtime_; }
  const Weights& weights() const { return weights_; }
  Weights TakeWeights() { return std::move(weights_); }
  comm::Group& group() { return *group_; }

 private:
  LoadedTensors Load(const FixtureOptions& options) const {
    LoadedTensors tensors;
    for (const plan::LocalTensor& local :
         plan::MakeShardMap(geometry_, layout_, options.rank, {"model.", true}).tensors) {
      LoadedTensor& tensor = tensors[local.name];
      tensor.role = local.role;
      tensor.rows = local.rows;
      tensor.cols = local.cols;
      tensor.leaf = local.leaf;
      const bool vector = local.role == plan::Role::kVector;
      if (!vector) tensor.parts.push_back({kernels::WeightFormat::kBF16, 0, local.rows, 0, 0});
      const int64_t bytes =
          vector ? local.rows * local.cols * 4
                 : kernels::PackedMatrix{kernels::WeightFormat::kBF16, local.rows, local.cols, local.leaf}.bytes();
      tensor.buffer = std::move(device::Buffer::Make(device_, bytes, local.name)).value();
      for (const plan::Slice& slice : local.slices) {
        if (!options.zeros) Fill(slice, vector, &tensor);
      }
    }
    return tensors;
  }

  static void Fill(const plan::Slice& slice, bool vector, LoadedTensor* tensor) {
    const int64_t tile_bytes = vector ? 0 : tensor->Packed(tensor->parts[0]).tile_bytes();
    for (int64_t row = 0; row < slice.rows; ++row) {
      for (int64_t col = 0; col < slice.cols; ++col) {
        const float value =
            SourceValue(slice.source, slice.src_row + row * slice.row_step, slice.src_col + col * slice.col_step);
        const int64_t to_row = slice.dst_row + (slice.transposed ? col : row);
        const int64_t to_col = slice.dst_col + (slice.transposed ? row : col);
        if (vector) {
          tensor->buffer.As<float>()[static_cast<size_t>(to_row * tensor->cols + to_col)] = value;
          continue;
        }
        const uint16_t half = quant::ToBF16(value);
        std::byte* tile = tensor->buffer.data() + to_row / kernels::kTileRows * tile_bytes;
        kernels::FormatRow(kernels::WeightFormat::kBF16)
            .store(reinterpret_cast<const std::byte*>(&half), 1, tile, to_row % kernels::kTileRows, to_col);
      }
    }
  }

  const plan::Geometry geometry_;
  const plan::Layout layout_;
  const plan::RankShard& shard_;
  std::unique_ptr<comm::Group> group_;
  comm::Communicator comm_;
  std::unique_ptr<comm::Group> context_group_;  // of this rank alone
  comm::Communicator context_;
  ThreadPool pool_{1};
  const device::Device device_;
  const Tables tables_;
  device::Workspace workspace_;
  cache::Caches caches_;
  const kernels::Kernels kernels_;
  record::RunLog log_;
  const Runtime runtime_;
  Weights weights_;
};

/// The layout of `geometry` over `ranks` ranks with one axis cut as named; which must be legal.
inline plan::Layout MakeLayout(const plan::Geometry& geometry, int64_t ranks, const std::string& axis = "",
                               const std::string& cut = "") {
  plan::LayoutOptions options;
  options.ranks = ranks;
  if (!axis.empty()) options.cuts[axis] = cut;
  Result<plan::Layout> layout = plan::MakeLayout(geometry, options);
  CHECK_MSG(layout.ok(), layout.error().message);
  return std::move(layout).value();
}

/// One sequence of `tokens` tokens in page order, and its view.
struct OneSequence {
  explicit OneSequence(int64_t tokens) {
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<TokenId>((i * 37 + 11) % 70));
      rows.push_back(static_cast<int32_t>(i));
    }
    spans.push_back({0, static_cast<int32_t>(tokens), 0, 0, pages.data()});
    runs.push_back({0, 0, tokens});
  }
  OneSequence(const OneSequence&) = delete;
  OneSequence& operator=(const OneSequence&) = delete;

  StepTokens view() const { return {ids, spans, pages, rows, {spans, runs, static_cast<int64_t>(rows.size())}}; }

  std::vector<TokenId> ids;
  std::vector<int32_t> rows;
  std::vector<int32_t> pages = {0, 1, 2, 3};
  std::vector<kernels::TokenSpan> spans;
  std::vector<comm::RowRun> runs;
};

/// The head's logits of `step` from the stream `x`, as far as this rank has them.
inline Status LogitsOf(const RankFixture& rank, const StepTokens& step, std::span<const float> x,
                       std::span<float> logits) {
  const StepView view = StageStep(rank.runtime(), step);
  std::vector<float> local(static_cast<size_t>(view.rows * rank.weights().head.n));
  std::vector<uint64_t> keys(static_cast<size_t>(view.rows * kernels::kArgmaxParts));
  TRY(Head(rank.runtime(), rank.weights(), view, x, {local, keys}));
  return GatherLogits(rank.runtime(), view.rows, local, logits);
}

/// Activations [tokens, hidden], a function of their place.
inline std::vector<float> Activations(int64_t tokens, int64_t hidden) {
  std::vector<float> x;
  for (int64_t i = 0; i < tokens * hidden; ++i) x.push_back(4 * SourceValue("x", i, 0));
  return x;
}

/// Checks that what the ranks contribute to a layer's sums adds up to what one rank has, for every cut of `axis`.
///   layer  layer(fixture, sums) adds one rank's part
template <class Layer>
void ExpectPartsAddUp(const plan::Geometry& geometry, const std::string& axis, int64_t tokens, const Layer& layer) {
  const auto sums_of = [&](const plan::Layout& layout, int64_t rank) {
    RankFixture fixture(geometry, layout, {.rank = rank, .tokens = tokens});
    const Sums sums = fixture.runtime().NewSums(tokens);
    layer(fixture, sums);
    return std::vector<int64_t>(sums.fixed.begin(), sums.fixed.end());
  };
  const std::vector<int64_t> whole = sums_of(MakeLayout(geometry, 1), 0);
  EXPECT_NE(whole, std::vector<int64_t>(whole.size())) << "a layer that adds nothing proves nothing";
  for (const int64_t ranks : {2, 3, 5}) {
    for (const std::string& cut : plan::LegalCuts(geometry, axis, ranks)) {
      const plan::Layout layout = MakeLayout(geometry, ranks, axis, cut);
      std::vector<int64_t> total(whole.size());
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const std::vector<int64_t> part = sums_of(layout, rank);
        for (size_t i = 0; i < total.size(); ++i) total[i] += part[i];
        // Replicated parts are not added up: every rank has the whole.
        if (cut == "replicate" && axis != "experts" && axis != "shared") total = part;
      }
      EXPECT_EQ(total, whole) << ranks << " ranks, " << axis << '=' << cut;
    }
  }
}

}  // namespace trivet::model
