// SPDX-License-Identifier: Apache-2.0
#include "record/records.h"

#include <fmt/format.h>

#include <iterator>

namespace trivet::record {
namespace {

constexpr const char* kLevels[] = {"off", "digest", "rows", "full"};

struct SiteRow {
  Site site;
  const char* name;
};
constexpr SiteRow kSites[] = {
    {Site::kEmbed, "embed"},          {Site::kMixerNorm, "norm1"}, {Site::kShown, "shown"},
    {Site::kReturned, "returned"},    {Site::kMixer, "resid1"},    {Site::kChannelsNorm, "norm2"},
    {Site::kRouter, "router"},        {Site::kRoute, "route"},     {Site::kChannels, "resid2"},
    {Site::kFinalNorm, "final_norm"}, {Site::kLogits, "logits"}};

}  // namespace

const char* LevelName(Level level) { return kLevels[static_cast<size_t>(level)]; }

std::optional<Level> ParseLevel(std::string_view text) {
  for (size_t i = 0; i < std::size(kLevels); ++i) {
    if (text == kLevels[i]) return static_cast<Level>(i);
  }
  return std::nullopt;
}

std::string SiteName(Site site) {
  for (const SiteRow& row : kSites) {
    if (row.site == site) return row.name;
  }
  return fmt::format("site {}", static_cast<int>(site));
}

}  // namespace trivet::record
