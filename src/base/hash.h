// SPDX-License-Identifier: Apache-2.0
// The one content hash for digests and fingerprints. Not for secrets: it is fast, not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trivet {

/// XXH3-64 with seed 0 of `bytes`; the same number on every machine.
uint64_t Hash64(std::span<const std::byte> bytes);

}  // namespace trivet
