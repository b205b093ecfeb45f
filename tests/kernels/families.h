// SPDX-License-Identifier: Apache-2.0
// Every kernel family with its cases: what the parity tests walk, on a processor and on a device.
#pragma once

#include "kernels/registry.h"
#include "tests/kernels/parity.h"

namespace trivet::kernels {

/// A family and its cases.
struct Family {
  const char* name;
  void (*compare)(RowLog*);
};

/// Every family.
inline constexpr Family kFamilies[] = {
    {"embed", CompareEmbed},
    {"rms_norm", CompareRmsNorm},
    {"add_norm", CompareAddNorm},
    {"l2_norm", CompareL2Norm},
    {"gated_norm", CompareGatedNorm},
    {"gemm", CompareGemm},
    {"rope", CompareRope},
    {"kv_write", CompareKvWrite},
    {"attention", CompareAttention},
    {"sigmoid_gate", CompareSigmoidGate},
    {"conv1d", CompareConv1d},
    {"delta_net", CompareDeltaNet},
    {"route", CompareRoute},
    {"gated_act", CompareGatedAct},
    {"add_bias", CompareAddBias},
    {"add_sums", CompareAddSums},
    {"round_sums", CompareRoundSums},
    {"map", CompareMap},
    {"copy_rows", CompareCopyRows},
    {"group_pairs", CompareGroupPairs},
    {"expert_gemm", CompareExpertGemm},
    {"argmax", CompareArgmax},
    {"draw", CompareDraw},
};

/// Rows of `family` in the registry that `target` runs.
inline std::set<std::string> RunnableOf(const std::string& family, const Target& target) {
  std::set<std::string> rows;
  for (const auto& names : RunnableRows(target)) {
    for (const std::string& name : names) {
      if (name.starts_with(family + "/")) rows.insert(name);
    }
  }
  return rows;
}

}  // namespace trivet::kernels
