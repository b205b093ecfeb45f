// SPDX-License-Identifier: Apache-2.0
// The reference row of every family: plain loops, the specification that every other row matches bit for bit.
#pragma once

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

/// The reference of each family; the family's header says what it computes.
void GemmRef(const Gemm::Args& args);
void RmsNormRef(const RmsNorm::Args& args);
void AddNormRef(const AddNorm::Args& args);
void L2NormRef(const L2Norm::Args& args);
void GatedNormRef(const GatedNorm::Args& args);
void GatedActRef(const GatedAct::Args& args);
void SigmoidGateRef(const SigmoidGate::Args& args);
void Conv1dRef(const Conv1d::Args& args);
void DeltaNetRef(const DeltaNet::Args& args);
/// Keys [D, 64] and values [64, Dv] of one page and KV head, from their codes.
void DecodeKvRef(const KvPages& cache, int64_t page, int64_t head, float* keys, float* values);
void AttentionRef(const Attention::Args& args);
/// As AttentionRef, with the visible blocks of every query in `splits` runs that are merged at the end: the same value,
/// added in another order. A planted fault; no row of the family.
void SplitAttentionRef(const Attention::Args& args, int64_t splits);
void KvWriteRef(const KvWrite::Args& args);
void EmbedRef(const Embed::Args& args);
void RopeRef(const Rope::Args& args);
void RouteRef(const Route::Args& args);
void AddBiasRef(const AddBias::Args& args);
void AddSumsRef(const AddSums::Args& args);
void RoundSumsRef(const RoundSums::Args& args);
void MapRef(const Map::Args& args);
void CopyRowsRef(const CopyRows::Args& args);
void ArgmaxRef(const Argmax::Args& args);
void DrawRef(const Draw::Args& args);
void GroupPairsRef(const GroupPairs::Args& args);
void ExpertGemmRef(const ExpertGemm::Args& args);

/// Sets the sums of `args` in its range to zero.
void ClearSums(const AddNorm::Args& args);

/// The products of each slot's pairs by args.gemm, many at a time.
void ExpertGemmGrouped(const ExpertGemm::Args& args);

}  // namespace trivet::kernels
