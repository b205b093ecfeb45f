// SPDX-License-Identifier: Apache-2.0
// Site digests: what a step computed, as one hash per named site. Two runs that promise the same bits are compared
// digest by digest, so that a failure names the first site that differs instead of a wrong token many layers later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace trivet::record {

/// The layer of a site that belongs to no layer, such as the embedding.
inline constexpr int64_t kNoLayer = -1;

/// What one site produced.
struct SiteDigest {
  std::string site;          // such as "attn.out"
  int64_t layer = kNoLayer;  // 0-based
  uint64_t digest = 0;       // XXH3-64 of the bytes

  bool operator==(const SiteDigest&) const = default;
};

/// The digests of one step, in the order in which the sites ran.
class SiteLog {
 public:
  /// Appends the digest of `bytes`.
  ///   bytes    the logical values only: pad lanes differ between layouts and are not part of the promise
  void Add(std::string_view site, int64_t layer, std::span<const std::byte> bytes);
  /// Forgets all digests, for the next step.
  void Clear() { digests_.clear(); }
  /// The digests so far.
  const std::vector<SiteDigest>& digests() const { return digests_; }
  /// [{"site", "layer", "xxh3": 16 hexadecimal digits}]; "layer" is left out for kNoLayer.
  Json ToJson() const;

 private:
  std::vector<SiteDigest> digests_;
};

/// Names the first site where two logs differ, as in "layer 3 attn.out: digest 00..01 against 00..02", or says which
/// log ends first; nothing when the logs are equal.
std::optional<std::string> FirstDifference(std::span<const SiteDigest> a, std::span<const SiteDigest> b);

}  // namespace trivet::record
