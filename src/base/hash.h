// SPDX-License-Identifier: Apache-2.0
// The one content hash for digests and fingerprints. Not for secrets: it is fast, not cryptographic.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trivet {

/// XXH3-64 with seed 0 of `bytes`; the same number on every machine.
uint64_t Hash64(std::span<const std::byte> bytes);

/// 128 bits of content hash.
struct Digest {
  uint64_t low = 0, high = 0;
  auto operator<=>(const Digest&) const = default;
};

/// XXH3-128 with seed 0 of `bytes`; the same number on every machine.
Digest Hash128(std::span<const std::byte> bytes);
Digest Hash128(std::string_view text);

/// The sum modulo 2^128: a digest of a set, whatever the order in which its members come.
Digest Add(const Digest& a, const Digest& b);

/// 32 hexadecimal digits, the high half first.
std::string Hex(const Digest& digest);
/// The inverse of Hex, or nothing.
std::optional<Digest> ParseDigest(std::string_view text);

}  // namespace trivet
