// SPDX-License-Identifier: Apache-2.0
#include "plan/geometry.h"

#include <algorithm>

namespace trivet::plan {

bool Geometry::Uses(Mixer mixer) const {
  return std::any_of(layers.begin(), layers.end(), [&](const LayerGeometry& layer) { return layer.mixer == mixer; });
}

bool Geometry::Uses(ChannelMixer channel_mixer) const {
  return std::any_of(layers.begin(), layers.end(),
                     [&](const LayerGeometry& layer) { return layer.channel_mixer == channel_mixer; });
}

}  // namespace trivet::plan
