// SPDX-License-Identifier: Apache-2.0
// Bytes of one layer's parts on one rank: the terms that both the choice of a cut and the cost of a layout add up.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cost.h"
#include "plan/geometry.h"
#include "plan/layout.h"

namespace trivet::plan {

/// Resident weights of one attention layer's heads: query, gate, key, value and output projections; of latent attention
/// also the down projections, which every rank with heads holds.
double AttentionWeightBytes(const Geometry& geometry, const AttentionShard& shard, const ElementBytes& bytes);

/// Keys and values of one token in one attention layer.
int64_t KvTokenBytes(const Geometry& geometry, const AttentionShard& shard, const ElementBytes& bytes);

/// Resident weights of one delta-net layer's heads (all input projections, convolution, decay and output projection).
double DeltaNetWeightBytes(const Geometry& geometry, const DeltaNetShard& shard, const ElementBytes& bytes);

/// Recurrent and convolution state of one sequence in one delta-net layer, kept in float32.
int64_t StateBytes(const Geometry& geometry, const DeltaNetShard& shard);

/// A gated MLP of `width` channels, also one expert slot: gate, up and down projections of elements of so many bytes.
double GatedMlpBytes(const Geometry& geometry, int64_t width, double element);

/// Expert slots that hold weights: those of real experts.
int64_t HeldExperts(const ExpertShard& shard);

/// Resident weights of one layer's routed experts.
double ExpertWeightBytes(const Geometry& geometry, const ExpertShard& shard, const ElementBytes& bytes);

/// Expected bytes of routed experts that one token reads from this rank, when every expert is as likely.
double ExpertStepBytes(const Geometry& geometry, const ExpertShard& shard, const ElementBytes& bytes);

/// Expected bytes of routed experts that one token reads from the rank with the most: ranks wait for the group that has
/// the most of the token's experts, and in it for the member with the most channels.
double BusiestExpertBytes(const Geometry& geometry, const std::vector<RankShard>& shards, const ElementBytes& bytes);

/// One table of `rows` vocabulary rows, of elements of so many bytes.
double VocabBytes(const Geometry& geometry, int64_t rows, double element);

/// What every rank holds of one layer whatever the cut: norms and router. Biases are too small to count.
double ReplicatedBytes(const Geometry& geometry, const LayerGeometry& layer, const ElementBytes& bytes);

}  // namespace trivet::plan
