// SPDX-License-Identifier: Apache-2.0
#include "record/sites.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"

namespace trivet::record {
namespace {

std::string SiteName(const SiteDigest& digest) {
  return digest.layer == kNoLayer ? digest.site : fmt::format("layer {} {}", digest.layer, digest.site);
}

}  // namespace

void SiteLog::Add(std::string_view site, int64_t layer, std::span<const std::byte> bytes) {
  digests_.push_back({std::string(site), layer, Hash64(bytes)});
}

Json SiteLog::ToJson() const {
  Json list = Json::array();
  for (const SiteDigest& digest : digests_) {
    Json entry = {{"site", digest.site}};
    if (digest.layer != kNoLayer) entry["layer"] = digest.layer;
    entry["xxh3"] = fmt::format("{:016x}", digest.digest);
    list.push_back(std::move(entry));
  }
  return list;
}

std::optional<std::string> FirstDifference(std::span<const SiteDigest> a, std::span<const SiteDigest> b) {
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 0; i < common; ++i) {
    if (a[i] == b[i]) continue;
    const std::string name = SiteName(a[i]);
    if (a[i].site != b[i].site || a[i].layer != b[i].layer) {
      return fmt::format("{}: site {} of one log is {} in the other", name, i, SiteName(b[i]));
    }
    return fmt::format("{}: digest {:016x} against {:016x}", name, a[i].digest, b[i].digest);
  }
  if (a.size() == b.size()) return std::nullopt;
  const SiteDigest& extra = a.size() > b.size() ? a[common] : b[common];
  return fmt::format("{}: only in the {} log ({} sites against {})", SiteName(extra),
                     a.size() > b.size() ? "first" : "second", a.size(), b.size());
}

}  // namespace trivet::record
