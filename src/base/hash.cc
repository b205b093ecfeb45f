// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>
#ifdef TRIVET_XXH_DISPATCH
// From here on XXH3 takes the machine's widest vectors; its numbers are the same everywhere.
#include <xxh_x86dispatch.h>
#endif

#include "base/check.h"
#include "base/hash_stream.h"

namespace trivet {

uint64_t Hash64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Digest Hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

Digest Hash128(std::string_view text) { return Hash128(std::as_bytes(std::span(text))); }

struct HashStream::State {
  State() : xxh(XXH3_createState()) { CHECK(xxh != nullptr); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* const xxh;
};

HashStream::HashStream() : state_(std::make_unique<State>()) { Reset(); }

HashStream::~HashStream() = default;

void HashStream::Reset() { XXH3_128bits_reset(state_->xxh); }

void HashStream::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

Digest HashStream::Finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {hash.low64, hash.high64};
}

Digest Add(const Digest& a, const Digest& b) {
  const uint64_t low = a.low + b.low;
  return {low, a.high + b.high + (low < a.low ? 1 : 0)};
}

std::string Hex(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

std::optional<Digest> ParseDigest(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  uint64_t halves[2] = {};
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
    if (!digit && !letter) return std::nullopt;
    halves[i / 16] = halves[i / 16] << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return Digest{halves[1], halves[0]};
}

}  // namespace trivet
