// SPDX-License-Identifier: Apache-2.0
#include "proof/token_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "plan/sequence_split.h"
#include "record/records.h"

namespace trivet::proof {
namespace {

constexpr const char* kNames[kDimensions] = {"tp", "cp", "dp", "pp", "ep"};

struct Owned {
  Dimension dimension;
  Mode mode;
};
constexpr Owned kOwnership[] = {{Dimension::kTp, Mode::kReplica},
                                {Dimension::kCp, Mode::kPartition},
                                {Dimension::kDp, Mode::kPartition},
                                {Dimension::kPp, Mode::kReplicaByLayer},
                                {Dimension::kEp, Mode::kNotATokenDimension}};

// Most ranks, layers and positions that a layout may declare, and most positions of all requests together.
constexpr int64_t kMost = int64_t{1} << 20;
constexpr int64_t kMostTokens = int64_t{1} << 24;

constexpr size_t Index(Dimension dimension) { return static_cast<size_t>(dimension); }

std::optional<Dimension> ParseDimension(const Json& name) {
  for (size_t i = 0; i < kDimensions; ++i) {
    if (name == kNames[i]) return static_cast<Dimension>(i);
  }
  return std::nullopt;
}

Finding Wrong(const char* fact) {
  return Found(Verdict::kSchemaMismatch, fmt::format("layout.json: \"{}\" is not what a layout has there", fact),
               {{"fact", fact}});
}

Gate ReadDimensions(const Json& list, const char* fact, std::vector<Dimension>* out) {
  if (!list.is_array()) return Wrong(fact);
  for (const Json& name : list) {
    const std::optional<Dimension> dimension = ParseDimension(name);
    if (!dimension || std::find(out->begin(), out->end(), *dimension) != out->end()) return Wrong(fact);
    out->push_back(*dimension);
  }
  return std::nullopt;
}

bool IsCount(const Json& value, int64_t least = 0) {
  return value.is_number_integer() && value >= least && value <= kMost;
}

Gate ReadStages(const Json& stages, int64_t layers, TokenLayout* out) {
  out->stage_of.assign(static_cast<size_t>(layers), -1);
  if (!stages.is_array()) return Wrong("stages");
  for (const Json& stage : stages) {
    const Json &pp = Member(stage, "pp"), &ranges = Member(stage, "layers");
    if (!IsCount(pp) || !ranges.is_array()) return Wrong("stages");
    for (const Json& range : ranges) {
      if (!range.is_array() || range.size() != 2 || !IsCount(range[0]) || !IsCount(range[1]) || range[1] > layers) {
        return Wrong("stages");
      }
      for (auto layer = range[0].get<size_t>(); layer < range[1].get<size_t>(); ++layer) {
        if (out->stage_of[layer] >= 0) return Wrong("stages");
        out->stage_of[layer] = pp.get<int64_t>();
      }
    }
  }
  for (const int64_t stage : out->stage_of) {
    if (stage < 0 || stage >= out->sizes[Index(Dimension::kPp)]) return Wrong("stages");
  }
  return std::nullopt;
}

Gate ReadRequests(const Json& run, const Json& assignment, TokenLayout* out) {
  const Json &requests = Member(run, "requests"), &groups = Member(assignment, "requests");
  if (!requests.is_array() || !groups.is_array() || groups.size() != requests.size()) return Wrong("dp_assignment");
  int64_t tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Json &request = Member(requests[i], "request"), &computed = Member(requests[i], "computed");
    const Json& from = Member(requests[i], "logits_from");
    if (!IsCount(request) || !IsCount(computed) || !IsCount(from)) return Wrong("requests");
    if (!IsCount(groups[i]) || groups[i] >= out->sizes[Index(Dimension::kDp)]) return Wrong("dp_assignment");
    out->requests.push_back({request.get<int64_t>(), computed.get<int64_t>(), from.get<int64_t>()});
    if (i > 0 && out->requests[i - 1].request >= out->requests[i].request) return Wrong("requests");
    out->dp_of.push_back(groups[i].get<int64_t>());
    tokens += out->requests[i].computed;
    if (tokens > kMostTokens) return Wrong("requests");
  }
  return std::nullopt;
}

// Sizes multiply to the world.
Gate ReadSizes(const Json& layout, TokenLayout* out) {
  for (size_t i = 0; i < kDimensions; ++i) {
    const Json& size = Member(Member(layout, "sizes"), kNames[i]);
    if (!IsCount(size, 1)) return Wrong("sizes");
    out->sizes[i] = size.get<int64_t>();
  }
  if (!IsCount(layout["world"], 1)) return Wrong("world");
  out->world = layout["world"].get<int64_t>();
  if (Gate gate = ReadDimensions(layout["rank_order"], "rank_order", &out->rank_order)) return gate;
  if (Gate gate = ReadDimensions(layout["expert_group_over"], "expert_group_over", &out->expert_group_over))
    return gate;
  int64_t product = 1;
  for (const Dimension dimension : out->rank_order) product = std::min(product * out->sizes[Index(dimension)], kMost);
  for (size_t i = 0; i + 1 < kDimensions; ++i) {
    const bool named =
        std::find(out->rank_order.begin(), out->rank_order.end(), static_cast<Dimension>(i)) != out->rank_order.end();
    if (!named && out->sizes[i] > 1) return Wrong("rank_order");
  }
  return product == out->world ? std::nullopt : Gate(Wrong("world"));
}

}  // namespace

const char* DimensionName(Dimension dimension) { return kNames[Index(dimension)]; }

const char* ModeName(Mode mode) {
  constexpr const char* kModes[] = {"replica", "partition_by_sequence", "partition", "replica_by_layer",
                                    "not_a_token_dimension"};
  return kModes[static_cast<size_t>(mode)];
}

Mode ModeOf(Dimension dimension, bool sequence_parallel) {
  if (dimension == Dimension::kTp && sequence_parallel) return Mode::kPartitionBySequence;
  return kOwnership[Index(dimension)].mode;
}

Coordinates TokenLayout::At(int64_t rank) const {
  Coordinates at{};
  int64_t left = rank;
  for (const Dimension dimension : rank_order) {
    at[Index(dimension)] = left % sizes[Index(dimension)];
    left /= sizes[Index(dimension)];
  }
  int64_t& ep = at[Index(Dimension::kEp)];
  if (static_cast<size_t>(rank) < ep_rank.size()) {
    ep = ep_rank[static_cast<size_t>(rank)];
  } else if (!expert_group_over.empty()) {
    // Consecutive ranks of the group, sizes differ by at most one, the lower ones have one more.
    int64_t group = 1, place = 0;
    for (const Dimension dimension : expert_group_over) {
      place += at[Index(dimension)] * group;
      group *= sizes[Index(dimension)];
    }
    const int64_t groups = std::min(sizes[Index(Dimension::kEp)], group), size = group / groups, more = group % groups;
    ep = place < more * (size + 1) ? place / (size + 1) : more + (place - more * (size + 1)) / size;
  }
  return at;
}

bool TokenLayout::Carries(const Coordinates& at, int64_t layer, size_t index, int64_t position) const {
  const auto coordinate = [&](Dimension dimension) { return at[Index(dimension)]; };
  if (coordinate(Dimension::kDp) != dp_of[index]) return false;
  const int64_t inside = std::clamp<int64_t>(layer, 0, layers() - 1);
  if (coordinate(Dimension::kPp) != stage_of[static_cast<size_t>(inside)]) return false;
  const int64_t stretch = std::max<int64_t>(1, cp_stretch > 0 ? cp_stretch : requests[index].computed);
  plan::SequencePiece piece{0, position % stretch, stretch};
  const auto holds = [&](Dimension dimension) {
    const int64_t parts = sizes[Index(dimension)];
    const bool cut = dimension == Dimension::kCp || ModeOf(dimension, sp) == Mode::kPartitionBySequence;
    if (!cut || parts == 1) return true;
    const bool zigzags = dimension == Dimension::kCp && zigzag;
    piece = plan::PieceOf(zigzags ? plan::SequenceSplit::kZigzag : plan::SequenceSplit::kContiguous, piece.offset,
                          piece.length, parts);
    return piece.part == coordinate(dimension);
  };
  return cp_first ? holds(Dimension::kCp) && holds(Dimension::kTp) : holds(Dimension::kTp) && holds(Dimension::kCp);
}

std::vector<Decision> TokenLayout::ExpectedDecisions(int64_t rank, const std::vector<int64_t>& wanted) const {
  std::vector<Decision> expected;
  const Coordinates at = At(rank);
  for (const int64_t layer : wanted) {
    for (size_t i = 0; i < requests.size(); ++i) {
      for (int64_t position = 0; position < requests[i].computed; ++position) {
        if (!Carries(at, layer, i, position)) continue;
        expected.push_back({layer, record::GlobalToken(requests[i].request, position)});
      }
    }
  }
  return expected;
}

std::vector<int64_t> TokenLayout::Carriers(const Decision& decision) const {
  std::vector<int64_t> carriers;
  for (int64_t rank = 0; rank < world; ++rank) {
    const std::vector<Decision> expected = ExpectedDecisions(rank, {decision.layer});
    if (std::binary_search(expected.begin(), expected.end(), decision)) carriers.push_back(rank);
  }
  return carriers;
}

Gate ReadTokenLayout(const Json& layout, const Json& run, TokenLayout* out) {
  *out = {};
  for (const char* fact : {"group", "world", "rank_order", "sizes", "sp", "cp_layout", "cp_stretch", "split_order",
                           "expert_group_over", "stages", "dp_assignment"}) {
    if (Find(layout, fact) != nullptr) continue;
    return Found(Verdict::kLayoutUndeclared,
                 fmt::format("layout.json: \"{}\" is not declared, and nothing may be inferred", fact),
                 {{"fact", fact}});
  }
  const Json& layers = Member(run, "layers");
  if (!IsCount(layers, 1)) return Wrong("layers");
  if (Gate gate = ReadSizes(layout, out)) return gate;
  if (!layout["sp"].is_boolean()) return Wrong("sp");
  out->sp = layout["sp"].get<bool>();
  out->zigzag = layout["cp_layout"] == "zigzag";
  if (!out->zigzag && layout["cp_layout"] != "contiguous") return Wrong("cp_layout");
  if (!IsCount(layout["cp_stretch"])) return Wrong("cp_stretch");
  out->cp_stretch = layout["cp_stretch"].get<int64_t>();
  out->cp_first = layout["split_order"] == Json::array({"cp", "sp"});
  if (!out->cp_first && layout["split_order"] != Json::array({"sp", "cp"})) return Wrong("split_order");
  if (const Json* declared = Find(Member(layout, "experts"), "ep_rank")) {
    if (!declared->is_array() || declared->size() != static_cast<size_t>(out->world)) return Wrong("experts");
    for (const Json& ep : *declared) {
      if (!ep.is_number_integer() || ep < -1 || ep >= out->sizes[Index(Dimension::kEp)]) return Wrong("experts");
      out->ep_rank.push_back(ep.get<int64_t>());
    }
  }
  if (Gate gate = ReadStages(layout["stages"], layers.get<int64_t>(), out)) return gate;
  return ReadRequests(run, layout["dp_assignment"], out);
}

}  // namespace trivet::proof
