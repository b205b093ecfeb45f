// SPDX-License-Identifier: Apache-2.0
#include "plan/tensor_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "plan/axis_rules.h"
#include "plan/layout.h"

namespace trivet::plan {
namespace {

struct PartAxis {
  std::string_view part;  // how a local tensor's name begins, behind "layers.N."
  const char* axis;
};

// The first row that fits decides. What is not listed is whole on every rank: norms and routers.
constexpr std::array<PartAxis, 12> kPartAxes = {{{"attn.down", ""},
                                                 {"attn.latent_norm", ""},
                                                 {"attn.query_norm", ""},
                                                 {"attn.q_norm", ""},
                                                 {"attn.k_norm", ""},
                                                 {"attn.", "attn"},
                                                 {"gdn.norm", ""},
                                                 {"gdn.", "gdn"},
                                                 {"moe.expert.", "experts"},
                                                 {"moe.shared.", "shared"},
                                                 {"mlp.", "mlp"},
                                                 {"embed", "vocab"}}};

// Local names without "layers.N.", which may be absent.
std::string_view BehindLayer(std::string_view local) {
  constexpr std::string_view kLayers = "layers.";
  if (!local.starts_with(kLayers)) return local;
  return local.substr(local.find('.', kLayers.size()) + 1);
}

std::string AxisOf(std::string_view part) {
  // A bias of a cut sum is added once, by one rank.
  if (part.ends_with(".o_bias") || part.ends_with(".down_bias")) return "";
  if (part == "head") return "vocab";
  for (const PartAxis& row : kPartAxes) {
    if (part.starts_with(row.part)) return row.axis;
  }
  return "";
}

// "layers.3.moe.expert.7.down" of tensors that hold all experts: slot 7 stands for any.
std::string AnySlot(std::string part, bool fused_experts) {
  constexpr std::string_view kExpert = "moe.expert.";
  const size_t at = part.find(kExpert);
  if (!fused_experts || at == std::string::npos) return part;
  const size_t begin = at + kExpert.size();
  return part.replace(begin, part.find('.', begin) - begin, "*");
}

// Whether a source holds keys or values, or key heads of a delta net: cut between groups only.
bool CutBetweenGroups(std::string_view source) {
  constexpr std::array<std::string_view, 6> kGrouped = {"self_attn.k_proj.",        "self_attn.v_proj.",
                                                        "linear_attn.in_proj_qkv.", "linear_attn.in_proj_qkvz.",
                                                        "linear_attn.in_proj_ba.",  "linear_attn.conv1d."};
  return std::any_of(kGrouped.begin(), kGrouped.end(),
                     [&](std::string_view name) { return source.find(name) != std::string_view::npos; });
}

// Sets what the cuts of the use's axis say.
void AddAxis(const Geometry& geometry, bool groups_only, TensorUse* use) {
  for (int64_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    const std::vector<AxisRule> rules = AxisRules(geometry, ranks, 0);
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const AxisRule& r) { return r.axis == use->axis; });
    CHECK_MSG(rule != rules.end(), use->axis);
    bool even = false;
    for (const CutRule& cut : rule->cuts) {
      if (cut.cut == Cut::kReplicate || (cut.cut == Cut::kOverlap && groups_only)) continue;
      even = even || cut.units.stock % ranks == 0;
      const std::string units = fmt::format("{} x {}", cut.units.stock, cut.unit);
      if (use->units.find(units) != std::string::npos) continue;
      use->units += (use->units.empty() ? "" : " or ") + units;
    }
    if (even) use->even_ranks.push_back(ranks);
  }
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kMatrix:
      return "matrix";
    case Role::kEmbedding:
      return "embedding";
    case Role::kVector:
      return "vector";
  }
  return "";
}

std::map<std::string, TensorUse> TensorUses(const Geometry& geometry, const SourceNames& names) {
  const Result<Layout> whole = MakeLayout(geometry, {});
  CHECK_MSG(whole.ok(), "one rank holds every model");
  std::map<std::string, TensorUse> uses;
  std::map<std::pair<std::string, bool>, TensorUse> axes;  // many tensors share one
  for (const LocalTensor& local : MakeShardMap(geometry, *whole, 0, names).tensors) {
    const std::string axis = AxisOf(BehindLayer(local.name));
    const std::string part = AnySlot(local.name, names.fused_experts);
    for (const Slice& slice : local.slices) {
      const bool groups_only = CutBetweenGroups(slice.source);
      auto [of_axis, is_new] = axes.try_emplace({axis, groups_only});
      of_axis->second.axis = axis;
      if (is_new && !axis.empty()) AddAxis(geometry, groups_only, &of_axis->second);
      auto [use, first] = uses.try_emplace(slice.source, of_axis->second);
      if (first) use->second.role = local.role;
      std::vector<std::string>& parts = use->second.parts;
      if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
    }
  }
  return uses;
}

}  // namespace trivet::plan
