// SPDX-License-Identifier: Apache-2.0
// The kernel table: every family, and the choice of one row each for a run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/argmax.h"
#include "kernels/attention.h"
#include "kernels/conv1d.h"
#include "kernels/delta_net.h"
#include "kernels/draw.h"
#include "kernels/expert_gemm.h"
#include "kernels/gated_act.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/token_ops.h"

namespace trivet::kernels {

/// The chosen row of every family: what a model calls.
struct Kernels {
  const KernelRow<Embed>* embed = nullptr;
  const KernelRow<RmsNorm>* rms_norm = nullptr;
  const KernelRow<AddNorm>* add_norm = nullptr;
  const KernelRow<L2Norm>* l2_norm = nullptr;
  const KernelRow<GatedNorm>* gated_norm = nullptr;
  const KernelRow<Gemm>* gemm = nullptr;
  const KernelRow<Rope>* rope = nullptr;
  const KernelRow<KvWrite>* kv_write = nullptr;
  const KernelRow<Attention>* attention = nullptr;
  const KernelRow<SigmoidGate>* sigmoid_gate = nullptr;
  const KernelRow<Conv1d>* conv1d = nullptr;
  const KernelRow<DeltaNet>* delta_net = nullptr;
  const KernelRow<Route>* route = nullptr;
  const KernelRow<GatedAct>* gated_act = nullptr;
  const KernelRow<AddBias>* add_bias = nullptr;
  const KernelRow<AddSums>* add_sums = nullptr;
  const KernelRow<RoundSums>* round_sums = nullptr;
  const KernelRow<Map>* map = nullptr;
  const KernelRow<CopyRows>* copy_rows = nullptr;
  const KernelRow<GroupPairs>* group_pairs = nullptr;
  const KernelRow<ExpertGemm>* expert_gemm = nullptr;
  const KernelRow<Argmax>* argmax = nullptr;
  const KernelRow<Draw>* draw = nullptr;

  /// Names of the rows, in the order above.
  std::vector<std::string> Names() const;
};

/// How rows are chosen: `contract` says whose bits are wanted at most; `rows` is a row name without its family, such as
/// "ref" or "avx2", that every family that has such a row must take; `force` names one row for one family and wins.
struct KernelOptions {
  std::string rows;
  std::map<std::string, std::string> force;  // family -> row name
  Contract contract = Contract::kMatrix;
};

/// Chooses a row for every family.
/// Errors:  kUsage when a name exists nowhere or the target cannot run it: names --rows or --force, and what can.
Result<Kernels> SelectKernels(Target target, const KernelOptions& options);

/// Row names of every family that `target` can run, in preference order.
std::vector<std::vector<std::string>> RunnableRows(const Target& target);

/// Why a row was taken or not.
struct RowAnswer {
  std::string row;
  bool chosen = false;
  std::string reason;  // the first that holds, with what was expected and what was found
};

/// Every row of a family for the target's backend, in preference order, as SelectKernels judges it.
/// Errors:  kUsage for a family that there is not, listing those that there are; those of SelectKernels.
Result<std::vector<RowAnswer>> ExplainRows(Target target, const KernelOptions& options, const std::string& family);

}  // namespace trivet::kernels
