// SPDX-License-Identifier: Apache-2.0
// Geometries for the planner's tests: the demo model's, and random small ones.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/families.h"
#include "plan/geometry.h"
#include "plan/layout.h"
#include "tests/support/paths.h"

namespace trivet::plan {

/// The demo model's config.json.
inline Json DemoConfig() {
  Result<Json> config = ReadJsonFile(DemoDir() + "/config.json");
  CHECK(config.ok());
  return std::move(config).value();
}

/// Reads a text config whose rope parameters are in the new form.
inline Result<Geometry> ReadTextConfig(const Json& text) {
  static const Json none = Json::object();
  const Json* rope = Find(text, "rope_parameters");
  return ReadGeometry({text, rope == nullptr ? none : *rope});
}

/// The demo model's geometry.
inline Geometry DemoGeometry() {
  Result<Geometry> geometry = ReadTextConfig(DemoConfig());
  CHECK(geometry.ok());
  return std::move(geometry).value();
}

/// A small geometry with one or two layers of every kind, ragged widths and vocabulary included.
inline Geometry RandomGeometry(std::mt19937_64* random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(*random);
  };
  Geometry geometry;
  geometry.hidden = pick(1, 6);
  geometry.vocab = pick(1, 300);
  geometry.tied_head = pick(0, 1) == 1;
  geometry.attention.kv_heads = pick(1, 5);
  geometry.attention.q_heads = geometry.attention.kv_heads * pick(1, 4);
  geometry.attention.head_dim = pick(1, 4);
  geometry.attention.output_gate = pick(0, 1) == 1;
  geometry.attention.qk_norm = pick(0, 1) == 1;
  geometry.delta_net.k_heads = pick(1, 5);
  geometry.delta_net.v_heads = geometry.delta_net.k_heads * pick(1, 3);
  geometry.delta_net.k_dim = pick(1, 4);
  geometry.delta_net.v_dim = pick(1, 4);
  geometry.delta_net.conv_width = pick(1, 4);
  geometry.moe.experts = pick(1, 6);
  geometry.moe.top_k = pick(1, geometry.moe.experts);
  geometry.moe.width = pick(1, 80);
  geometry.moe.shared_width = pick(0, 1) == 1 ? pick(1, 80) : 0;
  geometry.mlp_width = pick(1, 100);
  geometry.layers = {{Mixer::kAttention, ChannelMixer::kMoe}, {Mixer::kDeltaNet, ChannelMixer::kMlp}};
  return geometry;
}

/// Axes of a geometry, in table order.
inline std::vector<std::string> AxesOf(const Geometry& geometry) {
  std::vector<std::string> axes;
  for (const char* axis : {"attn", "gdn", "experts", "shared", "mlp", "vocab"}) {
    if (!LegalCuts(geometry, axis, 1).empty()) axes.push_back(axis);
  }
  return axes;
}

/// A random number of expert groups, with random maps of experts to them or the default one.
inline void RandomGroups(const Geometry& geometry, std::mt19937_64* random, LayoutOptions* options) {
  options->cuts.erase("experts");
  options->placement.reset();
  options->ep = 1 + static_cast<int64_t>((*random)() % static_cast<uint64_t>(options->ranks));
  if ((*random)() % 2 == 0) return;
  options->placement = Placement::Random(geometry.moe.experts, options->ep, (*random)()).value();
}

/// Options with a random legal cut on every axis; for experts that may be by groups.
inline LayoutOptions RandomCuts(const Geometry& geometry, int64_t ranks, std::mt19937_64* random) {
  LayoutOptions options;
  options.ranks = ranks;
  for (const std::string& axis : AxesOf(geometry)) {
    const std::vector<std::string> words = LegalCuts(geometry, axis, ranks);
    options.cuts[axis] = words[(*random)() % words.size()];
  }
  if (geometry.Uses(ChannelMixer::kMoe) && (*random)() % 3 == 0) RandomGroups(geometry, random, &options);
  return options;
}

}  // namespace trivet::plan
