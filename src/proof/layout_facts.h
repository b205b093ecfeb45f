// SPDX-License-Identifier: Apache-2.0
// What a declared layout says about a decision or a rank, for people and machines: `trivet layout`.
#pragma once

#include "base/json.h"
#include "proof/token_layout.h"

namespace trivet::proof {

/// Every dimension with its size and what it does to tokens.
Json DimensionsJson(const TokenLayout& layout);

/// The ranks that carry a decision, each with its place along every dimension; none for a token that was not computed.
Json OwnersJson(const TokenLayout& layout, const Decision& decision);

/// Where a rank stands, and what it must hold: its layers, and of every request the ranges [begin, end) of positions.
Json HoldingsJson(const TokenLayout& layout, int64_t rank);

}  // namespace trivet::proof
