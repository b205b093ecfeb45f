// SPDX-License-Identifier: Apache-2.0
#include "engine/request_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "base/str.h"

namespace trivet::engine {
namespace {

constexpr std::string_view kRequestKeys[] = {
    "temperature", "top_k", "top_p",      "min_p",      "repetition_penalty", "frequency_penalty", "presence_penalty",
    "seed",        "stop",  "max_tokens", "ignore_eos", "priority",           "logprobs"};

// An integer of [low, high], `fallback` when absent.
Result<int64_t> GetIntIn(const Json& object, std::string_view key, int64_t fallback, std::pair<int64_t, int64_t> range,
                         std::string_view what) {
  const Json* found = Find(object, key);
  if (found == nullptr || found->is_null()) return fallback;
  TRY_ASSIGN(const int64_t value, GetInt(object, key, fallback, what));
  if (value >= range.first && value <= range.second) return value;
  return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected {} to {}, found {}; give a value in this range",
                                               what, key, range.first, range.second, value));
}

Status ReadStops(const Json& object, std::string_view what, std::vector<std::string>* stop) {
  const Json* found = Find(object, "stop");
  if (found == nullptr || found->is_null()) return {};
  const Json list = found->is_array() ? *found : Json::array({*found});
  std::vector<std::string> texts;
  for (const Json& text : list) {
    if (!text.is_string()) {
      return MakeError(Code::kInvalid, fmt::format("{}: \"stop\": expected a text or a list of texts, found {}; give "
                                                   "one of these",
                                                   what, Quote(DumpJson(*found), 80)));
    }
    texts.push_back(text.get<std::string>());
  }
  if (const auto made = sampling::StopMatcher::Make(texts); !made.ok()) {
    return MakeError(Code::kInvalid, fmt::format("{}: {}", what, made.error().message));
  }
  *stop = std::move(texts);
  return {};
}

// Ranges, with the name of what holds the parameters.
Status ValidSampling(const sampling::SamplingParams& params, std::string_view what) {
  const Status valid = sampling::Validate(params);
  return valid.ok() ? valid : MakeError(Code::kInvalid, fmt::format("{}: {}", what, valid.error().message));
}

// Any 64 bits, signed or not.
Result<uint64_t> GetSeed(const Json& object, uint64_t fallback, std::string_view what) {
  const Json* found = Find(object, "seed");
  if (found != nullptr && found->is_number_unsigned()) return found->get<uint64_t>();
  TRY_ASSIGN(const int64_t seed, GetInt(object, "seed", static_cast<int64_t>(fallback), what));
  return static_cast<uint64_t>(seed);
}

}  // namespace

Status ReadSampling(const Json& object, std::string_view what, sampling::SamplingParams* params) {
  const std::pair<const char*, double*> numbers[] = {{"temperature", &params->temperature},
                                                     {"top_p", &params->top_p},
                                                     {"min_p", &params->min_p},
                                                     {"repetition_penalty", &params->repetition_penalty},
                                                     {"frequency_penalty", &params->frequency_penalty},
                                                     {"presence_penalty", &params->presence_penalty}};
  for (const auto& [key, value] : numbers) {
    TRY_ASSIGN(*value, GetDouble(object, key, *value, what));
  }
  TRY_ASSIGN(params->top_k, GetInt(object, "top_k", params->top_k, what));
  return {};
}

Result<sampling::SamplingParams> DefaultSampling(const Json& generation_config) {
  constexpr std::string_view kWhat = "generation_config.json";
  sampling::SamplingParams params;
  TRY_ASSIGN(const bool sample, GetBool(generation_config, "do_sample", true, kWhat));
  TRY(ReadSampling(generation_config, kWhat, &params));
  if (!sample) params.temperature = 0;
  TRY(ValidSampling(params, kWhat));
  return params;
}

std::span<const std::string_view> RequestKeys() { return kRequestKeys; }

Json WithIntegers(Json object) {
  if (!object.is_object()) return object;
  constexpr double kExact = int64_t{1} << 53;  // below which every whole number is a double of its own
  for (auto& [key, value] : object.items()) {
    if (!value.is_number_float()) continue;
    const auto number = value.get<double>();
    if (number == std::floor(number) && std::fabs(number) < kExact) value = static_cast<int64_t>(number);
  }
  return object;
}

Status ReadRequest(const Json& object, std::string_view what, GenerationRequest* request) {
  sampling::SamplingParams& params = request->sampling;
  TRY(ReadSampling(object, what, &params));
  TRY_ASSIGN(const int64_t most, GetIntIn(object, "max_tokens", request->max_tokens.value_or(0), {0, INT32_MAX}, what));
  request->max_tokens = most == 0 ? std::nullopt : std::optional<int64_t>(most);
  TRY_ASSIGN(const int64_t priority, GetIntIn(object, "priority", request->priority, {INT32_MIN, INT32_MAX}, what));
  request->priority = static_cast<int32_t>(priority);
  TRY_ASSIGN(params.seed, GetSeed(object, params.seed, what));
  const int64_t none = -1;
  TRY_ASSIGN(const int64_t logprobs,
             GetIntIn(object, "logprobs", request->logprobs ? params.logprobs : none, {0, kMaxLogprobs}, what));
  request->logprobs = logprobs >= 0;
  params.logprobs = static_cast<int>(std::max<int64_t>(logprobs, 0));
  TRY_ASSIGN(request->ignore_eos, GetBool(object, "ignore_eos", request->ignore_eos, what));
  TRY(ReadStops(object, what, &request->stop));
  return ValidSampling(params, what);
}

Result<uint64_t> ParseSeed(const std::string& text, std::string_view what) {
  uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, seed);
  if (error == std::errc() && stopped == end) return seed;
  const Result<int64_t> negative = ParseInt(text, what);
  if (negative.ok()) return static_cast<uint64_t>(*negative);
  return MakeError(Code::kUsage,
                   fmt::format("{}: expected an integer from {} to {}, found \"{}\"; give one in that range", what,
                               INT64_MIN, UINT64_MAX, Quote(text)));
}

}  // namespace trivet::engine
