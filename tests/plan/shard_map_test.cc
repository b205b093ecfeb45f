// SPDX-License-Identifier: Apache-2.0
#include "plan/shard_map.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/str.h"
#include "plan/leaf.h"
#include "tests/plan/plan_fixtures.h"
#include "tests/support/paths.h"

namespace trivet::plan {
namespace {

using ::testing::HasSubstr;

// How often each element of a matrix is covered.
struct Grid {
  int64_t rows = 0, cols = 0;
  std::vector<int> count;

  Grid() = default;
  Grid(int64_t r, int64_t c) : rows(r), cols(c), count(static_cast<size_t>(r * c), 0) {}
  // False when an element leaves the grid.
  bool Add(int64_t row, int64_t col) {
    if (row < 0 || col < 0 || row >= rows || col >= cols) return false;
    ++count[static_cast<size_t>(row * cols + col)];
    return true;
  }
  // Counts a slice on the side of its source, or of its target.
  bool AddSource(const Slice& slice) {
    bool inside = slice.rows > 0 && slice.cols > 0;
    for (int64_t i = 0; i < slice.rows; ++i) {
      for (int64_t j = 0; j < slice.cols; ++j) {
        inside &= Add(slice.src_row + i * slice.row_step, slice.src_col + j * slice.col_step);
      }
    }
    return inside;
  }
  bool AddTarget(const Slice& slice) {
    bool inside = slice.rows > 0 && slice.cols > 0;
    for (int64_t i = 0; i < slice.dst_rows(); ++i) {
      for (int64_t j = 0; j < slice.dst_cols(); ++j) inside &= Add(slice.dst_row + i, slice.dst_col + j);
    }
    return inside;
  }
  int Lowest() const { return *std::min_element(count.begin(), count.end()); }
  int Highest() const { return *std::max_element(count.begin(), count.end()); }
};

// The matrix a source tensor is seen as.
Grid SeenAs(const SourceTensor& tensor) {
  if (tensor.shape.size() == 1) return Grid(tensor.shape[0], 1);
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return Grid(rows, tensor.shape.back());
}

bool Contains(const std::string& name, const std::string& part) { return name.find(part) != std::string::npos; }

// The axis that cuts a source tensor, or empty when every rank holds it whole.
std::string AxisOf(const std::string& name) {
  if (Contains(name, "embed_tokens") || Contains(name, "lm_head")) return "vocab";
  if (Contains(name, "norm")) return "";
  if (Contains(name, "mlp.gate.") || Contains(name, "mlp.router.")) return "";
  if (Contains(name, "self_attn.")) return "attn";
  if (Contains(name, "linear_attn.")) return "gdn";
  if (Contains(name, "mlp.experts.")) return "experts";
  if (Contains(name, "shared_expert.")) return "shared";
  if (Contains(name, "mlp.gate.") || Contains(name, "shared_expert_gate")) return "";
  return "mlp";
}

// Sources of which every rank that holds a head of latent attention has a copy.
bool HeldByHeads(const std::string& name) { return Contains(name, "q_a_") || Contains(name, "kv_a_"); }

// Sources of which ranks that share a head hold the same rows.
bool SharedByOverlap(const std::string& name) {
  return Contains(name, ".k_proj") || Contains(name, ".v_proj") || Contains(name, "in_proj_qkv") ||
         Contains(name, "conv1d");
}

// Checks the whole cover of one layout: every element of every required tensor, once per holder.
void ExpectExactCover(const Geometry& geometry, const LayoutOptions& options, const SourceNames& names) {
  const Result<Layout> layout = MakeLayout(geometry, options);
  ASSERT_TRUE(layout.ok()) << layout.error().message;
  std::map<std::string, Grid> sources;
  for (const SourceTensor& tensor : RequiredTensors(geometry, names)) {
    ASSERT_TRUE(sources.emplace(tensor.name, SeenAs(tensor)).second) << tensor.name;
  }
  for (int64_t rank = 0; rank < options.ranks; ++rank) {
    for (const LocalTensor& local : MakeShardMap(geometry, *layout, rank, names).tensors) {
      ASSERT_GT(local.rows, 0) << local.name;
      ASSERT_GT(local.cols, 0) << local.name;
      Grid grid(local.rows, local.cols);
      for (const Slice& slice : local.slices) {
        ASSERT_EQ(sources.count(slice.source), 1u) << slice.source;
        ASSERT_TRUE(sources[slice.source].AddSource(slice)) << slice.source;
        ASSERT_TRUE(grid.AddTarget(slice)) << local.name;
      }
      ASSERT_LE(grid.Highest(), 1) << local.name << ": slices overlap";
    }
  }
  for (const auto& [name, grid] : sources) {
    const std::string axis = AxisOf(name);
    const AxisPlan* row = nullptr;
    for (const AxisPlan& candidate : layout->axes) {
      if (candidate.axis == axis) row = &candidate;
    }
    const bool everywhere = axis.empty() || (row != nullptr && row->cut == "replicate");
    const int ranks = static_cast<int>(options.ranks);
    ASSERT_GE(grid.Lowest(), everywhere && !HeldByHeads(name) ? ranks : 1) << name;
    if (HeldByHeads(name)) continue;
    if (row != nullptr && row->cut == "overlap" && SharedByOverlap(name)) continue;
    ASSERT_LE(grid.Highest(), everywhere ? ranks : 1) << name;
  }
}

TEST(ShardMap, ExactCoverOverRandomGeometriesAndEveryCut) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 5; ++round) {
    const Geometry geometry = RandomGeometry(&random);
    const SourceNames names = {round % 2 == 0 ? "model." : "model.language_model.", round % 3 != 0};
    for (int64_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
      for (const std::string& axis : AxesOf(geometry)) {
        for (const std::string& word : LegalCuts(geometry, axis, ranks)) {
          LayoutOptions options = RandomCuts(geometry, ranks, &random);
          if (axis == "experts") options.ep = 0, options.placement.reset();
          options.cuts[axis] = word;
          options.pad_to = static_cast<int64_t>(random() % 4) * 2;
          SCOPED_TRACE(axis + "=" + word + " on " + std::to_string(ranks));
          ASSERT_NO_FATAL_FAILURE(ExpectExactCover(geometry, options, names));
        }
      }
    }
  }
}

// Biases, sinks, sandwich norms, a correction, and projections stored in groups, alternating or transposed.
TEST(ShardMap, ExactCoverOfEveryWayToStore) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 6; ++round) {
    Geometry geometry = RandomGeometry(&random);
    geometry.branch_norms = round % 2 == 0;
    geometry.attention.qkv_bias = geometry.attention.output_bias = geometry.attention.sinks = true;
    geometry.mlp.bias = geometry.moe.bias = geometry.moe.router.bias = geometry.moe.router.correction = true;
    geometry.moe.shared_gate = round % 2 == 1;
    if (round % 3 == 2) {
      geometry.layers[0].mixer = Mixer::kLatentAttention;
      geometry.latent = {round == 2 ? 0 : 3, 5, 3, 4, 2, round == 2};
      geometry.attention.head_dim = geometry.latent.nope_dim + geometry.latent.rope_dim;
      geometry.attention.kv_heads = 1;
    }
    SourceNames names{"model.", round % 2 == 0};
    names.grouped_delta_net = round % 2 == 1;
    names.grouped_gates = round % 3 == 1;
    names.split_latent_up = round % 2 == 0;
    names.alternating_experts = names.fused_experts;
    names.input_major_experts = names.fused_experts && round % 4 == 0;
    for (const int64_t ranks : {1, 2, 3, 5, 8}) {
      for (int i = 0; i < 4; ++i) {
        ASSERT_NO_FATAL_FAILURE(ExpectExactCover(geometry, RandomCuts(geometry, ranks, &random), names)) << round;
      }
    }
  }
}

TEST(ShardMap, ExactCoverOfTheDemoAtEveryRankCount) {
  for (int64_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    LayoutOptions options;
    options.ranks = ranks;
    ASSERT_NO_FATAL_FAILURE(ExpectExactCover(DemoGeometry(), options, {"model.", true}));
  }
}

const LocalTensor* FindLocal(const ShardMap& map, const std::string& name) {
  for (const LocalTensor& tensor : map.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

ShardMap DemoMap(const LayoutOptions& options, int64_t rank) {
  const Geometry demo = DemoGeometry();
  const Result<Layout> layout = MakeLayout(demo, options);
  CHECK(layout.ok());
  return MakeShardMap(demo, *layout, rank, {"model.", true});
}

void ExpectSlice(const Slice& slice, const Slice& expected) {
  EXPECT_EQ(slice.source, expected.source);
  EXPECT_EQ(slice.src_row, expected.src_row);
  EXPECT_EQ(slice.src_col, expected.src_col);
  EXPECT_EQ(slice.rows, expected.rows);
  EXPECT_EQ(slice.cols, expected.cols);
  EXPECT_EQ(slice.dst_row, expected.dst_row);
  EXPECT_EQ(slice.dst_col, expected.dst_col);
}

TEST(ShardMap, QueryAndGateRowsOfAHeadStayTogether) {
  LayoutOptions options;
  options.ranks = 5;
  const ShardMap map = DemoMap(options, 2);  // query heads 4 and 5 on KV head 1
  const LocalTensor* qkv = FindLocal(map, "layers.3.attn.qkv");
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ(qkv->rows, 2 * 128 + 64 + 64);
  EXPECT_EQ(qkv->cols, 256);
  EXPECT_EQ(qkv->leaf, kColumnLeaf);
  ASSERT_EQ(qkv->slices.size(), 3u);
  ExpectSlice(qkv->slices[0], {"model.layers.3.self_attn.q_proj.weight", 4 * 128, 0, 256, 256, 0, 0});
  ExpectSlice(qkv->slices[1], {"model.layers.3.self_attn.k_proj.weight", 64, 0, 64, 256, 256, 0});
  ExpectSlice(qkv->slices[2], {"model.layers.3.self_attn.v_proj.weight", 64, 0, 64, 256, 320, 0});
  const LocalTensor* o = FindLocal(map, "layers.3.attn.o");
  ASSERT_NE(o, nullptr);
  EXPECT_EQ(o->leaf, 64);
  ASSERT_EQ(o->slices.size(), 1u);
  ExpectSlice(o->slices[0], {"model.layers.3.self_attn.o_proj.weight", 0, 256, 256, 128, 0, 0});
}

TEST(ShardMap, DeltaNetSectionsArePaddedOneByOne) {
  LayoutOptions options;
  options.ranks = 3;
  options.cuts = {{"gdn", "pad"}};  // six groups, two each; rank 2 holds dummies only
  const LocalTensor* in = nullptr;
  const ShardMap real = DemoMap(options, 1);
  in = FindLocal(real, "layers.0.gdn.in");
  ASSERT_NE(in, nullptr);
  EXPECT_EQ(in->rows, 128 + 128 + 256 + 256 + 4 + 4);
  ASSERT_EQ(in->slices.size(), 6u);
  ExpectSlice(in->slices[1], {"model.layers.0.linear_attn.in_proj_qkv.weight", 256 + 128, 0, 128, 256, 128, 0});
  ExpectSlice(in->slices[2], {"model.layers.0.linear_attn.in_proj_qkv.weight", 512 + 256, 0, 256, 256, 256, 0});
  ExpectSlice(in->slices[4], {"model.layers.0.linear_attn.in_proj_b.weight", 4, 0, 4, 256, 768, 0});
  ExpectSlice(in->slices[5], {"model.layers.0.linear_attn.in_proj_a.weight", 4, 0, 4, 256, 772, 0});
  const ShardMap dummy = DemoMap(options, 2);
  in = FindLocal(dummy, "layers.0.gdn.in");
  ASSERT_NE(in, nullptr);
  EXPECT_EQ(in->rows, 776);
  EXPECT_TRUE(in->slices.empty());
}

TEST(ShardMap, FusedExpertsAreCutInsideEveryExpert) {
  LayoutOptions options;
  options.ranks = 3;
  const ShardMap map = DemoMap(options, 2);  // channels 64..95 of every expert
  const LocalTensor* gate_up = FindLocal(map, "layers.1.moe.expert.4.gate_up");
  ASSERT_NE(gate_up, nullptr);
  EXPECT_EQ(gate_up->rows, 64);
  ASSERT_EQ(gate_up->slices.size(), 2u);
  ExpectSlice(gate_up->slices[0], {"model.layers.1.mlp.experts.gate_up_proj", 4 * 192 + 64, 0, 32, 256, 0, 0});
  ExpectSlice(gate_up->slices[1], {"model.layers.1.mlp.experts.gate_up_proj", 4 * 192 + 96 + 64, 0, 32, 256, 32, 0});
  const LocalTensor* down = FindLocal(map, "layers.1.moe.expert.4.down");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->leaf, 32);
  ExpectSlice(down->slices[0], {"model.layers.1.mlp.experts.down_proj", 4 * 256, 64, 256, 32, 0, 0});
}

TEST(ShardMap, SlotsAreFilledWithTheExpertsOfTheMap) {
  LayoutOptions options;
  options.ranks = 5;  // groups of ranks 0 and 1, 2 and 3, 4
  options.placement = Placement::Random(10, 3, 2).value();
  for (const auto& [rank, group, channel] : {std::tuple{0, 0, 0}, std::tuple{3, 1, 64}, std::tuple{4, 2, 0}}) {
    const ShardMap map = DemoMap(options, rank);
    const std::vector<int64_t>& table = options.placement->tables[static_cast<size_t>(group)];
    ASSERT_FALSE(table.empty());
    for (size_t slot = 0; slot < table.size(); ++slot) {
      const LocalTensor* gate_up = FindLocal(map, fmt::format("layers.1.moe.expert.{}.gate_up", slot));
      ASSERT_NE(gate_up, nullptr);
      EXPECT_EQ(gate_up->slices[0].src_row, table[slot] * 192 + channel) << "rank " << rank << " slot " << slot;
    }
    EXPECT_EQ(FindLocal(map, fmt::format("layers.1.moe.expert.{}.gate_up", table.size())), nullptr);
  }
}

TEST(ShardMap, EmptyTensorsAndDummySlotsAreLeftOut) {
  LayoutOptions options;
  options.ranks = 3;
  options.cuts = {{"experts", "whole-pad"}};
  const ShardMap map = DemoMap(options, 2);  // no attention heads, experts 8 and 9 and two dummies
  EXPECT_EQ(FindLocal(map, "layers.3.attn.qkv"), nullptr);
  EXPECT_EQ(FindLocal(map, "layers.3.attn.o"), nullptr);
  EXPECT_NE(FindLocal(map, "layers.3.attn.q_norm"), nullptr);
  EXPECT_NE(FindLocal(map, "layers.3.moe.expert.1.down"), nullptr);
  EXPECT_EQ(FindLocal(map, "layers.3.moe.expert.2.down"), nullptr);
  EXPECT_EQ(FindLocal(map, "head"), nullptr);  // tied
  EXPECT_EQ(FindLocal(map, "embed")->role, Role::kEmbedding);
}

TEST(ShardMap, RouterIsWholeAndCarriesTheSharedGate) {
  LayoutOptions options;
  options.ranks = 7;
  const ShardMap map = DemoMap(options, 6);
  const LocalTensor* router = FindLocal(map, "layers.0.moe.router");
  ASSERT_NE(router, nullptr);
  EXPECT_EQ(router->rows, 11);
  ASSERT_EQ(router->slices.size(), 2u);
  ExpectSlice(router->slices[1], {"model.layers.0.mlp.shared_expert_gate.weight", 0, 0, 1, 256, 10, 0});
}

// The demo's files hold exactly what is required, in these shapes; anything else has a reason to be skipped.
TEST(ShardMap, RequiredTensorsMatchTheDemoCheckpoint) {
  std::map<std::string, std::vector<int64_t>> stored;
  for (const char* file : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    const Result<std::string> bytes = ReadTextFile(DemoDir() + "/" + file, 1 << 26);
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    uint64_t length = 0;
    ASSERT_GT(bytes->size(), sizeof length);
    std::copy_n(bytes->data(), sizeof length, reinterpret_cast<char*>(&length));
    ASSERT_LT(length, bytes->size());
    const Result<Json> header = ParseJson(std::string_view(*bytes).substr(8, length), file);
    ASSERT_TRUE(header.ok()) << header.error().message;
    for (const auto& [name, entry] : header->items()) {
      if (name != "__metadata__") stored[name] = entry["shape"].get<std::vector<int64_t>>();
    }
  }
  const Geometry demo = DemoGeometry();
  const Result<SourceNames> names = DetectNames(demo, [&](const std::string& name) { return stored.count(name) == 1; });
  ASSERT_TRUE(names.ok()) << names.error().message;
  for (const SourceTensor& tensor : RequiredTensors(demo, *names)) {
    ASSERT_EQ(stored.count(tensor.name), 1u) << tensor.name;
    EXPECT_EQ(stored[tensor.name], tensor.shape) << tensor.name;
    stored.erase(tensor.name);
  }
  for (const auto& [name, shape] : stored)
    EXPECT_NE(SkippedReason(name, static_cast<int64_t>(demo.layers.size())), "") << name;
}

// Stages share out what one stage holds; the embedding of a tied head is in the first and in the last.
TEST(ShardMap, StagesShareOutTheTensors) {
  for (const bool tied : {false, true}) {
    Geometry geometry = DemoGeometry();
    geometry.tied_head = tied;
    LayoutOptions options;
    options.ranks = 2;
    const Layout one = MakeLayout(geometry, options).value();
    options.stage_layers = {1, 3, 4};
    const Layout three = MakeLayout(geometry, options).value();
    for (int64_t tp = 0; tp < 2; ++tp) {
      std::vector<std::string> expected, found;
      for (const LocalTensor& tensor : MakeShardMap(geometry, one, tp, {"model."}).tensors) {
        expected.push_back(tensor.name);
      }
      for (int64_t pp = 0; pp < 3; ++pp) {
        for (const LocalTensor& tensor :
             MakeShardMap(geometry, three, three.RankAt({tp, 0, pp, 0}), {"model."}).tensors) {
          found.push_back(tensor.name);
          const bool ends = tensor.name == "final_norm" || tensor.name == "head";
          EXPECT_TRUE(tensor.name != "embed" || pp == 0 || (tied && pp == 2));
          EXPECT_TRUE(!ends || pp == 2) << tensor.name;
        }
      }
      if (tied) expected.push_back("embed");
      EXPECT_THAT(found, testing::UnorderedElementsAreArray(expected));
    }
  }
}

}  // namespace
}  // namespace trivet::plan
