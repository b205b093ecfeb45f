// SPDX-License-Identifier: Apache-2.0
// Distinct integer types for ids, so that two kinds cannot be swapped by accident.
#pragma once

#include <cstdint>

namespace trivet {

enum class SeqId : int64_t {};  // one sequence in the engine, never reused
using TokenId = int32_t;        // a vocabulary id; plain because kernels and files hold arrays of it

}  // namespace trivet
