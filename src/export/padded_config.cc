// SPDX-License-Identifier: Apache-2.0
#include "export/padded_config.h"

#include <fmt/format.h>

#include "base/str.h"
#include "plan/families.h"
#include "plan/plan_json.h"

namespace trivet::exporter {
namespace {

void SetHeads(const plan::Geometry& stock, const plan::Geometry& padded, Json* text) {
  const bool latent = padded.Uses(plan::Mixer::kLatentAttention);
  (*text)["num_attention_heads"] = padded.attention.q_heads;
  // Over a latent, what configs call KV heads are the heads.
  (*text)["num_key_value_heads"] = latent ? padded.attention.q_heads : padded.attention.kv_heads;
  // Where it is not stated, readers divide the hidden width by the heads.
  if (!latent) (*text)["head_dim"] = stock.attention.head_dim;
}

void SetExperts(const plan::Geometry& padded, Json* text) {
  const char* key = Find(*text, "moe_intermediate_size") != nullptr ? "moe_intermediate_size" : "intermediate_size";
  (*text)[key] = padded.moe.width;
  if (padded.moe.shared_width > 0 && padded.moe.shared_gate) {
    (*text)["shared_expert_intermediate_size"] = padded.moe.shared_width;
  }
}

}  // namespace

Result<Json> PaddedConfig(const checkpoint::ModelFiles& files, const plan::Geometry& stock,
                          const plan::Geometry& padded) {
  Json config = files.config;
  Json* text = &config;
  if (const auto wrapped = config.find("text_config"); wrapped != config.end() && wrapped->is_object())
    text = &*wrapped;
  if (padded.UsesKv()) SetHeads(stock, padded, text);
  if (padded.Uses(plan::Mixer::kDeltaNet)) {
    (*text)["linear_num_key_heads"] = padded.delta_net.k_heads;
    (*text)["linear_num_value_heads"] = padded.delta_net.v_heads;
  }
  if (padded.Uses(plan::ChannelMixer::kMlp)) (*text)["intermediate_size"] = padded.mlp_width;
  if (padded.Uses(plan::ChannelMixer::kMoe)) SetExperts(padded, text);
  if (padded.vocab != stock.vocab) (*text)["vocab_size"] = padded.vocab;
  // MTP heads have the old geometry and are left out.
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) {
    if (Find(*text, key) != nullptr) (*text)[key] = 0;
  }
  TRY_ASSIGN(const Json read, checkpoint::TextConfig(config, "config.json"));
  const Result<plan::Geometry> geometry = plan::ReadGeometry({read, files.rope});
  const std::string wanted = DumpJson(plan::GeometryJson(padded));
  if (geometry.ok() && DumpJson(plan::GeometryJson(*geometry)) == wanted) return config;
  return MakeError(Code::kInfeasible,
                   fmt::format("config.json: expected keys that can state the padded extents apart, found {}; choose "
                               "another number of ranks",
                               geometry.ok() ? "some that are one number there, such as the widths of all experts"
                                             : geometry.error().message));
}

}  // namespace trivet::exporter
