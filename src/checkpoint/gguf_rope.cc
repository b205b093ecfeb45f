// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_rope.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "base/str.h"
#include "checkpoint/gguf.h"

namespace trivet::checkpoint {
namespace {

constexpr int64_t kMaxFactorBytes = 1 << 16;

// Reads one file's rule.
class Reader {
 public:
  Reader(const Checkpoint& checkpoint, const GgufRope& rope, const std::string& path)
      : checkpoint_(checkpoint), rope_(rope), path_(path) {}

  Result<Json> Scaling() const {
    TRY_ASSIGN(const std::string type, GetString(checkpoint_.metadata(), Key("type"), "linear", path_));
    TRY_ASSIGN(const double older, GetDouble(checkpoint_.metadata(), rope_.prefix + "rope.scale_linear", 0, path_));
    TRY_ASSIGN(const double factor, Number("factor", older));
    TRY_ASSIGN(const Json factors, Factors("rope_freqs.weight"));
    TRY_ASSIGN(const Json short_factors, Factors("rope_factors_short.weight"));
    const bool none = type == "none" || (type == "linear" && (factor == 0 || factor == 1));
    if (!none && type != "linear" && type != "yarn" && type != "longrope") {
      return GgufUnsupported(path_, Key("type"), "none, linear, yarn or longrope", type);
    }
    if ((!none && !factors.is_null()) || (type == "longrope") == short_factors.is_null()) {
      return GgufUnsupported(path_, Key("type"), "a rule that goes with the file's tensors of factors", type);
    }
    if (!factors.is_null()) {
      return Json{{"rope_type", "longrope"}, {"short_factor", factors}, {"factor", 1.0}, {"attention_factor", 1.0}};
    }
    if (none) return Json{{"rope_type", "default"}};
    Json rule = rope_.implied;
    rule["rope_type"] = type;
    if (factor != 0) rule["factor"] = factor;
    if (const Json* original = Find(checkpoint_.metadata(), Key("original_context_length"))) {
      rule["original_max_position_embeddings"] = *original;
    }
    if (type == "yarn") TRY(AddYarn(&rule));
    if (type == "longrope") {
      TRY_ASSIGN(const double attention, Number("attn_factor", 1));
      rule["short_factor"] = short_factors;
      rule["attention_factor"] = attention;
    }
    return rule;
  }

 private:
  std::string Key(std::string_view key) const { return fmt::format("{}rope.scaling.{}", rope_.prefix, key); }
  Result<double> Number(std::string_view key, double fallback) const {
    return GetDouble(checkpoint_.metadata(), Key(key), fallback, path_);
  }

  // Factors of a tensor, one a rotary pair; null when the file has no such tensor.
  Result<Json> Factors(const char* name) const {
    const TensorInfo* info = checkpoint_.Find(name);
    if (info == nullptr) return Json();
    if (info->dtype != tensor::DType::kF32 || info->bytes > kMaxFactorBytes) {
      return GgufUnsupported(path_, name, "a factor a rotary pair as F32",
                             fmt::format("{} {}", tensor::DTypeName(info->dtype), ShapeText(info->shape)));
    }
    std::vector<float> factors(static_cast<size_t>(info->bytes) / sizeof(float));
    TRY(checkpoint_.Read(*info, 0, std::as_writable_bytes(std::span(factors))));
    return Json(factors);
  }

  Status AddYarn(Json* rule) const {
    for (const char* beta : {"beta_fast", "beta_slow"}) {
      if (const Json* value = Find(checkpoint_.metadata(), Key(fmt::format("yarn_{}", beta)))) (*rule)[beta] = *value;
    }
    // Programs multiply the rule's own factor by this one; a config states their product.
    for (const char* key : {"yarn_ext_factor", "yarn_attn_factor", "attn_factor"}) {
      TRY_ASSIGN(const double value, Number(key, 1));
      if (value != 1) return GgufUnsupported(path_, Key(key), "1", fmt::format("{}", value));
    }
    TRY_ASSIGN(const double log_multiplier, Number("yarn_log_multiplier", 0));
    if (log_multiplier == 0) return {};
    if (!rope_.latent)
      return GgufUnsupported(path_, Key("yarn_log_multiplier"), "none", fmt::format("{}", log_multiplier));
    // It is a tenth of mscale_all_dim, and mscale is the same in all models that have it.
    const Json mscale = static_cast<float>(10 * log_multiplier);
    (*rule)["mscale"] = mscale;
    (*rule)["mscale_all_dim"] = mscale;
    return {};
  }

  const Checkpoint& checkpoint_;
  const GgufRope& rope_;
  const std::string& path_;
};

}  // namespace

Result<Json> GgufScaling(const Checkpoint& checkpoint, const GgufRope& rope, const std::string& path) {
  return Reader(checkpoint, rope, path).Scaling();
}

}  // namespace trivet::checkpoint
