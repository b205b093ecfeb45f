// SPDX-License-Identifier: Apache-2.0
// Products by the matrix units of a GPU, for the rows of the matrix contract.
#pragma once

#include "kernels/expert_gemm.h"

namespace trivet::kernels {

/// Whether they multiply `w`. Depends on the model alone: what they do not serve goes by chains in every layout.
bool MatrixUnitsServe(const PackedMatrix& w);

/// A product with a matrix that they serve, of at least one row and one tile; tile_end is at most the matrix' last.
void GemmByMatrix(const Gemm::Args& args);

/// A product of experts of which `some` is one matrix, with `tiles` tiles.
void ExpertGemmByMatrix(const ExpertGemm::Args& args, const PackedMatrix& some, int64_t tiles);

}  // namespace trivet::kernels
