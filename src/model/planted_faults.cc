// SPDX-License-Identifier: Apache-2.0
#include "model/planted_faults.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trivet::model {

void NudgeLogit(const Runtime& runtime, std::span<float> logits) {
  std::vector<float> host(logits.size());
  runtime.device.Download(host.data(), logits.data(), static_cast<int64_t>(logits.size_bytes()));
  float& largest = *std::max_element(host.begin(), host.end());
  largest = std::nextafter(largest, std::numeric_limits<float>::infinity());
  runtime.device.Upload(logits.data(), host.data(), static_cast<int64_t>(logits.size_bytes()));
}

int64_t ChooseByShares(const Runtime& runtime, kernels::Route::Args args) {
  struct Candidate {
    float by;
    int32_t expert;
  };
  const auto tokens = static_cast<size_t>(args.end), k = static_cast<size_t>(args.top_k);
  std::vector<std::vector<Candidate>> found(tokens);
  int64_t among = args.experts_total;
  for (int64_t share = 0, begin = 0; share < runtime.comm.size(); ++share) {
    const int64_t end = args.experts_total * (share + 1) / runtime.comm.size();
    if (end == begin) continue;  // more ranks than experts
    kernels::Route::Args part = args;
    part.logits += begin;
    part.experts_total = end - begin;
    part.top_k = std::min(part.experts_total, args.top_k);
    if (part.correction != nullptr) part.correction += begin;
    part.groups = part.groups_kept = 1;
    part.slot_of = nullptr;
    part.forced = nullptr;
    part.other = nullptr;
    const size_t width = static_cast<size_t>(part.top_k);
    std::vector<int32_t> experts(tokens * width), ids(tokens * width);
    std::vector<float> weights(tokens * width), scores(tokens * width), choice(tokens * (width + 1));
    part.experts = experts.data();
    part.weights = weights.data();
    part.record = {ids.data(), scores.data(), choice.data()};
    runtime.kernels.route->run(part);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t i = 0; i < width; ++i) {
        found[t].push_back({choice[t * (width + 1) + i], static_cast<int32_t>(begin) + ids[t * width + i]});
      }
    }
    among = std::min(among, part.experts_total);
    begin = end;
  }
  std::vector<int32_t> chosen, other(tokens);
  for (std::vector<Candidate>& candidates : found) {
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.by != b.by ? a.by > b.by : a.expert < b.expert; });
    for (size_t i = 0; i < k; ++i) chosen.push_back(candidates[i].expert);
  }
  args.forced = chosen.data();
  args.other = other.data();
  runtime.kernels.route->run(args);
  return among;
}

std::optional<MovedExperts> MoveMidStep(const Runtime& runtime, int64_t layer, const ExpertWeights& experts) {
  const comm::Communicator& world = runtime.pipeline.world;
  if (!world.fault().Hits(comm::FaultKind::kMovedMap, world.rank())) return std::nullopt;
  record::RunLog* log = runtime.log;
  if (layer < world.fault().site) {
    if (log != nullptr) log->Place(log->options().addresses, log->options().version);
    return std::nullopt;
  }
  MovedExperts moved{experts, {}, {}};
  const bool swaps = experts.slots > 1;
  const auto other = [swaps](int64_t slot) { return swaps && (slot == 0 || slot == 1) ? 1 - slot : slot; };
  for (auto* tables : {&moved.experts.gate_up, &moved.experts.down, &moved.experts.down_bias}) {
    for (ExpertMatrices& table : *tables) {
      if (swaps) std::swap(table.w[0], table.w[1]);
      table.device = table.w.data();
    }
  }
  if (experts.gate_up_bias != nullptr) {
    const int64_t row = 2 * experts.width;
    moved.gate_up_biases.assign(experts.gate_up_bias, experts.gate_up_bias + experts.slots * row);
    if (swaps) {
      const auto second = moved.gate_up_biases.begin() + row;
      std::swap_ranges(moved.gate_up_biases.begin(), second, second);
    }
    moved.experts.gate_up_bias = moved.gate_up_biases.data();
  }
  for (int64_t expert = 0; expert < runtime.geometry.moe.experts; ++expert) {
    moved.slot_of.push_back(static_cast<int32_t>(other(runtime.tables.slot_of[expert])));
  }
  if (log == nullptr) return moved;
  std::vector<record::Address> addresses = log->options().addresses;
  for (record::Address& address : addresses) {
    if (address.ep_rank != runtime.shard.experts.group) continue;
    address.local_slot = static_cast<uint16_t>(other(address.local_slot));
  }
  log->Place(std::move(addresses), log->options().version + 1);
  return moved;
}

}  // namespace trivet::model
