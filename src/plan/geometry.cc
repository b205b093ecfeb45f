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

int64_t Geometry::key_dim() const { return latent.rank > 0 ? latent.rank + latent.rope_dim : attention.head_dim; }

int64_t Geometry::value_dim() const { return latent.rank > 0 ? latent.rank : attention.head_dim; }

int64_t Geometry::head_out_dim() const { return latent.rank > 0 ? latent.value_dim : attention.head_dim; }

}  // namespace trivet::plan
