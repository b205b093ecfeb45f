// SPDX-License-Identifier: Apache-2.0
#include "plan/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "base/str.h"
#include "plan/config_keys.h"

namespace trivet::plan {
namespace {

using Frequencies = std::vector<double>;

// What a rule reads and what it changes: frequencies come in as the base gives them.
struct Rule {
  const Json& rope;
  RopeContext context;
  double theta = 0;
  Frequencies frequencies;
  double scale = 1;
};

// The context the model was first trained with.
Result<int64_t> OriginalPositions(const Rule& rule) {
  const char* key = "original_max_position_embeddings";
  if (!Present(rule.rope, key)) return rule.context.max_positions;
  return NeedExtent(rule.rope, key, int64_t{1} << 40);
}

// The stretch of the context, stated or implied.
Result<double> Factor(const Rule& rule, int64_t original) {
  const double implied = static_cast<double>(rule.context.max_positions) / static_cast<double>(original);
  return PositiveDouble(rule.rope, "factor", implied);
}

Status Default(Rule*) { return {}; }

Status Linear(Rule* rule) {
  TRY_ASSIGN(const double factor, PositiveDouble(rule->rope, "factor", 0));
  for (double& frequency : rule->frequencies) frequency /= factor;
  return {};
}

// Long wavelengths are stretched, short ones stay, those between are blended.
Status Llama3(Rule* rule) {
  TRY_ASSIGN(const double factor, PositiveDouble(rule->rope, "factor", 0));
  TRY_ASSIGN(const double low, PositiveDouble(rule->rope, "low_freq_factor", 0));
  TRY_ASSIGN(const double high, PositiveDouble(rule->rope, "high_freq_factor", 0));
  if (high <= low) return InvalidKey("high_freq_factor", fmt::format("more than {}", low), fmt::format("{}", high));
  TRY_ASSIGN(const int64_t positions, OriginalPositions(*rule));
  const auto original = static_cast<double>(positions);
  for (double& frequency : rule->frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    const double blend = std::clamp((original / wavelength - low) / (high - low), 0.0, 1.0);
    frequency = (1 - blend) * frequency / factor + blend * frequency;
  }
  return {};
}

double YarnScale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

// The factor on cosine and sine.
Result<double> YarnAttention(const Rule& rule, double factor) {
  if (Present(rule.rope, "attention_factor")) return PositiveDouble(rule.rope, "attention_factor", 0);
  TRY_ASSIGN(const double mscale, GetDouble(rule.rope, "mscale", 0, kConfig));
  TRY_ASSIGN(const double all, GetDouble(rule.rope, "mscale_all_dim", 0, kConfig));
  if (mscale == 0 || all == 0) return YarnScale(factor, 1);
  return YarnScale(factor, mscale) / YarnScale(factor, all);
}

// Channels that turn often within the original context stay, those that turn less than once are stretched.
Status Yarn(Rule* rule) {
  TRY_ASSIGN(const int64_t positions, OriginalPositions(*rule));
  TRY_ASSIGN(const double factor, Factor(*rule, positions));
  TRY_ASSIGN(const double fast, PositiveDouble(rule->rope, "beta_fast", 32));
  TRY_ASSIGN(const double slow, PositiveDouble(rule->rope, "beta_slow", 1));
  TRY_ASSIGN(const bool truncate, GetBool(rule->rope, "truncate", true, kConfig));
  TRY_ASSIGN(rule->scale, YarnAttention(*rule, factor));
  const auto dim = static_cast<double>(rule->context.rotary_dim);
  const auto channel = [&](double turns) {
    return dim * std::log(static_cast<double>(positions) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rule->theta));
  };
  double low = channel(fast), high = channel(slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < rule->frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = rule->frequencies[i];
    frequency = frequency / factor * ramp + frequency * (1 - ramp);
  }
  return {};
}

// Below the original context each channel has its short factor.
Status LongRope(Rule* rule) {
  TRY_ASSIGN(const int64_t original, OriginalPositions(*rule));
  TRY_ASSIGN(const double factor, Factor(*rule, original));
  const double implied =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(std::max<int64_t>(2, original))));
  TRY_ASSIGN(rule->scale, PositiveDouble(rule->rope, "attention_factor", implied));
  const Json* factors = Find(rule->rope, "short_factor");
  if (factors == nullptr || !factors->is_array() || factors->size() != rule->frequencies.size()) {
    return InvalidKey("short_factor", fmt::format("a list of {} numbers", rule->frequencies.size()), "something else");
  }
  for (size_t i = 0; i < rule->frequencies.size(); ++i) {
    const Json& value = (*factors)[i];
    if (!value.is_number() || !(value.get<double>() > 0)) {
      return InvalidKey("short_factor", "positive numbers", Quote(DumpJson(value)));
    }
    rule->frequencies[i] /= value.get<double>();
  }
  rule->context.max_positions = std::min(rule->context.max_positions, original);
  return {};
}

struct Type {
  std::string_view name;
  Status (*apply)(Rule* rule);
};
constexpr std::array<Type, 6> kTypes = {{{"default", Default},
                                         {"linear", Linear},
                                         {"llama3", Llama3},
                                         {"yarn", Yarn},
                                         {"dynamic", Default},
                                         {"longrope", LongRope}}};

}  // namespace

Result<RopeRule> MakeRopeTable(const Json& rope, const RopeContext& context) {
  TRY_ASSIGN(const std::string name, GetString(rope, "rope_type", "default", kConfig));
  const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& row) { return row.name == name; });
  if (type == kTypes.end()) {
    return UnsupportedKey("rope_type", "default, linear, llama3, yarn, dynamic or longrope", Quote(name));
  }
  TRY_ASSIGN(const double theta, PositiveDouble(rope, "rope_theta", 0));
  if (theta <= 1) return InvalidKey("rope_theta", "more than 1", fmt::format("{}", theta));
  Rule rule{rope, context, theta, {}, 1};
  for (int64_t i = 0; i < context.rotary_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(context.rotary_dim);
    // References hold the unscaled frequency in float32.
    rule.frequencies.push_back(static_cast<double>(static_cast<float>(std::pow(theta, exponent))));
  }
  TRY(type->apply(&rule));
  RopeRule made{{{}, static_cast<float>(rule.scale)}, rule.context.max_positions};
  for (const double frequency : rule.frequencies) made.table.frequencies.push_back(static_cast<float>(frequency));
  return made;
}

}  // namespace trivet::plan
