// SPDX-License-Identifier: Apache-2.0
#include "proof/layout_facts.h"

#include "record/records.h"

namespace trivet::proof {
namespace {

Json PlaceOf(const TokenLayout& layout, int64_t rank) {
  Json place = Json::object();
  const Coordinates at = layout.At(rank);
  for (size_t d = 0; d < kDimensions; ++d) place[DimensionName(static_cast<Dimension>(d))] = at[d];
  return place;
}

}  // namespace

Json DimensionsJson(const TokenLayout& layout) {
  Json json = Json::object();
  for (size_t d = 0; d < kDimensions; ++d) {
    const auto dimension = static_cast<Dimension>(d);
    json[DimensionName(dimension)] = {{"size", layout.sizes[d]}, {"mode", ModeName(ModeOf(dimension, layout.sp))}};
  }
  return json;
}

Json OwnersJson(const TokenLayout& layout, const Decision& decision) {
  Json owners = Json::array();
  for (const int64_t rank : layout.Carriers(decision)) {
    owners.push_back({{"rank", rank}, {"at", PlaceOf(layout, rank)}});
  }
  return {{"layer", decision.layer},
          {"request", record::RequestOf(decision.token)},
          {"position", record::PositionOf(decision.token)},
          {"dimensions", DimensionsJson(layout)},
          {"owners", owners}};
}

Json HoldingsJson(const TokenLayout& layout, int64_t rank) {
  const Coordinates at = layout.At(rank);
  Json layers = Json::array(), requests = Json::array();
  for (int64_t layer = 0; layer < layout.layers(); ++layer) {
    if (layout.stage_of[static_cast<size_t>(layer)] == at[static_cast<size_t>(Dimension::kPp)]) layers.push_back(layer);
  }
  // Of the rank's own stage every layer has the same tokens.
  const int64_t layer = layers.empty() ? 0 : layers[0].get<int64_t>();
  for (const RequestFacts& request : layout.requests) {
    Json ranges = Json::array();
    for (const Decision& held : layout.ExpectedDecisions(rank, {layer})) {
      if (record::RequestOf(held.token) != request.request) continue;
      const int64_t position = record::PositionOf(held.token);
      if (ranges.empty() || ranges.back()[1] != position) ranges.push_back(Json::array({position, position}));
      ranges.back()[1] = position + 1;
    }
    requests.push_back({{"request", request.request}, {"positions", ranges}});
  }
  return {{"rank", rank},
          {"at", PlaceOf(layout, rank)},
          {"dimensions", DimensionsJson(layout)},
          {"layers", layers},
          {"requests", requests}};
}

}  // namespace trivet::proof
