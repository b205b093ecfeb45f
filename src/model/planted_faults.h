// SPDX-License-Identifier: Apache-2.0
// Planted faults (comm/fault.h) of a mixture of experts: real mistakes in what a rank computes, for tests that show how
// they are found. Nothing of this runs without --fault.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/runtime.h"
#include "model/weights.h"

namespace trivet::model {

/// kRouterUlp: takes the largest of `logits` one step higher.
void NudgeLogit(const Runtime& runtime, std::span<float> logits);

/// kLocalTopK: chooses among every rank's share of the experts apart, and then among those.
///   returns  experts of the smallest share that has any
int64_t ChooseByShares(const Runtime& runtime, kernels::Route::Args args);

/// Experts after those of a rank's first two slots have changed places.
struct MovedExperts {
  ExpertWeights experts;
  std::vector<int32_t> slot_of;       // as Tables::slot_of
  std::vector<float> gate_up_biases;  // that `experts` points to, where there are any
};

/// kMovedMap: from the fault's layer on, moves the experts, and says so in the log as another map; before, and without
/// the fault, nothing.
std::optional<MovedExperts> MoveMidStep(const Runtime& runtime, int64_t layer, const ExpertWeights& experts);

}  // namespace trivet::model
