// SPDX-License-Identifier: Apache-2.0
// Sampling and limits of a request as JSON says them: in generation_config.json, in a line of a prompt file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "engine/generation.h"

namespace trivet::engine {

/// Most alternatives that can be reported for a token.
inline constexpr int64_t kMaxLogprobs = 100;

/// Reads temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty and presence_penalty where `object`
/// has them; other keys are not looked at. Ranges are checked by sampling::Validate.
///   what  the object's name in messages
/// Errors:  kInvalid for a value of a wrong type.
Status ReadSampling(const Json& object, std::string_view what, sampling::SamplingParams* params);

/// How a model samples when nobody says: its generation_config.json over the defaults, greedy when that says do_sample
/// false.  Errors: those of ReadSampling.
Result<sampling::SamplingParams> DefaultSampling(const Json& generation_config);

/// The keys that ReadRequest looks at.
std::span<const std::string_view> RequestKeys();

/// A request as it came, with integers where its own members are whole numbers below 2^53 in magnitude: JSON has one
/// kind of number, and some clients write 5.0 for 5. What is no object stays as it is.
Json WithIntegers(Json object);

/// ReadSampling, and besides max_tokens (0: up to the context), seed, stop (a text or a list of them), ignore_eos and
/// logprobs (alternatives reported for each token); what `object` lacks stays as `request` has it. Errors:  kInvalid
/// names the key, its range and the value.
Status ReadRequest(const Json& object, std::string_view what, GenerationRequest* request);

/// A seed in decimal digits, which may be negative: -2^63 to 2^64 - 1, as "seed" of ReadRequest; negative ones are
/// those of the same 64 bits.
///   what  the object's name in messages
/// Errors:  kUsage.
Result<uint64_t> ParseSeed(const std::string& text, std::string_view what);

}  // namespace trivet::engine
