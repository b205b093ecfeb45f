// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/draw.h"
#include "sampling/random.h"

namespace trivet::sampling {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr uint32_t kDrawSlot = 0;

// Of log-probabilities alone: they decide nothing.
double Exp(double x) { return std::exp(x); }
double Log(double x) { return std::log(x); }

struct Candidate {
  TokenId token = 0;
  float logit = 0;
};

bool Better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The k best tokens that are not forbidden, in no particular order.
std::vector<Candidate> Best(std::span<const float> logits, size_t k) {
  // Up to here a heap of k, which most tokens never enter, beats partitioning a list of all tokens.
  constexpr size_t kHeapLimit = 1024;
  std::vector<Candidate> best;
  if (k == 0) return best;
  const bool heap = k <= kHeapLimit;
  best.reserve(heap ? k : logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kForbidden) continue;
    const Candidate candidate{static_cast<TokenId>(i), logits[i]};
    if (!heap) {
      best.push_back(candidate);
    } else if (best.size() < k) {
      best.push_back(candidate);
      std::push_heap(best.begin(), best.end(), Better);
    } else if (Better(candidate, best.front())) {
      std::pop_heap(best.begin(), best.end(), Better);
      best.back() = candidate;
      std::push_heap(best.begin(), best.end(), Better);
    }
  }
  if (best.size() > k) {
    std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(k), best.end(), Better);
    best.resize(k);
  }
  return best;
}

Error OutsideVocabulary(const char* what, TokenId token, size_t size) {
  return MakeError(Code::kInvalid, fmt::format("{}: expected token ids in [0, {}), found {}; use the model's tokenizer",
                                               what, size, token));
}

bool HasPenalty(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 || params.presence_penalty != 0;
}

// Mask, bias and penalties.
Result<std::vector<float>> Process(std::span<const float> logits, const SamplingParams& params,
                                   const TokenHistory& history, std::span<const uint64_t> allowed) {
  std::vector<float> out(logits.begin(), logits.end());
  for (size_t i = 0; i < out.size() && !allowed.empty(); ++i) {
    if (i / 64 >= allowed.size() || (allowed[i / 64] >> i % 64 & 1) == 0) out[i] = kForbidden;
  }
  const auto outside = [&](TokenId token) { return token < 0 || static_cast<size_t>(token) >= out.size(); };
  for (const auto& [token, bias] : params.logit_bias) {
    if (outside(token)) return OutsideVocabulary("logit_bias", token, out.size());
    out[static_cast<size_t>(token)] += bias;
  }
  if (!HasPenalty(params)) return out;
  for (const auto& [token, count] : history.output_counts()) {
    if (outside(token)) return OutsideVocabulary("token history", token, out.size());
    auto logit = static_cast<double>(out[static_cast<size_t>(token)]);
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count > 0) logit -= count * params.frequency_penalty + params.presence_penalty;
    out[static_cast<size_t>(token)] = static_cast<float>(logit);
  }
  return out;
}

// False for NaN, too.
bool IsLogit(float value) { return value < std::numeric_limits<float>::infinity(); }

Error NoLogit(float found, size_t token, size_t size) {
  return MakeError(Code::kInvalid,
                   fmt::format("logits: expected numbers below infinity, found {} at token {} of {}; the model's "
                               "weights or activations are broken",
                               std::isnan(found) ? "NaN" : "infinity", token, size));
}

Error NoneAllowed(size_t size) {
  return MakeError(Code::kInvalid, fmt::format("logits: expected at least one allowed token, found none of {}; "
                                               "forbid fewer tokens",
                                               size));
}

Status CheckLogits(std::span<const float> logits) {
  // Sixteen at once, as in Greatest: to leave at the first one would look at them one by one.
  uint32_t wrong[16] = {};
  for (size_t i = 0; i + 16 <= logits.size(); i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) wrong[lane] |= IsLogit(logits[i + lane]) ? 0U : 1U;
  }
  const bool some = std::any_of(wrong, wrong + 16, [](uint32_t lane) { return lane != 0; });
  for (size_t i = some ? 0 : logits.size() / 16 * 16; i < logits.size(); ++i) {
    if (!IsLogit(logits[i])) return NoLogit(logits[i], i, logits.size());
  }
  return {};
}

// The token that a rule gives.
TokenId DrawBy(const DrawRule& rule, std::span<const float> logits, const TokenLogit& best) {
  uint64_t key = kernels::ArgmaxKey(best.logit, best.token);
  const int32_t row = 0;
  const auto n = static_cast<int64_t>(logits.size());
  static const kernels::KernelRow<kernels::Draw>* const draw = kernels::Select<kernels::Draw>(kernels::CpuTarget(), "");
  draw->run({logits.data(), n, n, &row, &rule, &key, 1, 0, 1});
  return kernels::ArgmaxToken(key);
}

void AddLogprobs(std::span<const float> logits, int count, SampleResult* result) {
  const auto best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += Exp(static_cast<double>(logit) - best);
  const double log_sum = Log(sum);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - best - log_sum); };
  result->logprob = logprob(logits[static_cast<size_t>(result->token)]);
  std::vector<Candidate> top = Best(logits, std::min(static_cast<size_t>(count), logits.size()));
  std::sort(top.begin(), top.end(), Better);
  for (const Candidate& candidate : top) result->top.emplace_back(candidate.token, logprob(candidate.logit));
}

}  // namespace

Status Validate(const SamplingParams& params) {
  const SamplingParams& p = params;
  const struct {
    const char* name;
    double value;
    bool valid;  // false for NaN
    const char* range;
  } rows[] = {
      {"temperature", p.temperature, p.temperature >= 0 && std::isfinite(p.temperature), "a number of at least 0"},
      {"top_k", static_cast<double>(p.top_k), p.top_k >= -1, "at least 1, or 0 or -1 for all"},
      {"top_p", p.top_p, p.top_p > 0 && p.top_p <= 1, "above 0 and at most 1"},
      {"min_p", p.min_p, p.min_p >= 0 && p.min_p <= 1, "0 to 1"},
      {"repetition_penalty", p.repetition_penalty, p.repetition_penalty >= 0.01 && p.repetition_penalty <= 100,
       "0.01 to 100"},
      {"frequency_penalty", p.frequency_penalty, std::fabs(p.frequency_penalty) <= 2, "-2 to 2"},
      {"presence_penalty", p.presence_penalty, std::fabs(p.presence_penalty) <= 2, "-2 to 2"},
      {"logprobs", static_cast<double>(p.logprobs), p.logprobs >= -1, "at least 0, or -1 for none"},
  };
  for (const auto& row : rows) {
    if (row.valid) continue;
    return MakeError(Code::kInvalid, fmt::format("{}: expected {}, found {}; give a value in this range", row.name,
                                                 row.range, row.value));
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token >= 0 && ((bias >= -100 && bias <= 100) || bias == kForbidden)) continue;
    return MakeError(Code::kInvalid, fmt::format("logit_bias: expected token ids from 0 and values -100 to 100, found "
                                                 "{} for token {}; give a value in this range",
                                                 bias, token));
  }
  return {};
}

void TokenHistory::AddPrompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) output_counts_.try_emplace(token, 0);
}

TokenId Greatest(std::span<const float> logits) {
  // Sixteen maxima at once, which compilers turn into vectors; one alone would wait for each comparison.
  float lanes[16];
  std::fill_n(lanes, 16, logits[0]);
  size_t i = 0;
  for (; i + 16 <= logits.size(); i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) lanes[lane] = std::max(lanes[lane], logits[i + lane]);
  }
  float best = *std::max_element(lanes, lanes + 16);
  for (; i < logits.size(); ++i) best = std::max(best, logits[i]);
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

bool IsRuled(const SamplingParams& params) { return params.logit_bias.empty() && !HasPenalty(params); }

DrawRule RuleOf(const SamplingParams& params, uint64_t request, int64_t position) {
  if (params.temperature < kGreedyTemperature) return {};
  DrawRule rule;
  constexpr auto kOne = static_cast<double>(kDrawOne);
  rule.uniform = static_cast<uint64_t>(UniformDouble({params.seed, request, position, kDrawSlot}) * kOne);
  rule.top_p = static_cast<uint64_t>(std::ceil(params.top_p * kOne));
  rule.scale = static_cast<float>(1 / params.temperature);
  rule.min_weight = static_cast<uint32_t>(std::ceil(params.min_p * static_cast<double>(kernels::kBestWeight)));
  rule.top_k = static_cast<int32_t>(std::clamp<int64_t>(params.top_k, 0, std::numeric_limits<int32_t>::max()));
  return rule;
}

Result<TokenId> TokenOf(const TokenLogit& found, int64_t vocab) {
  const auto size = static_cast<size_t>(vocab);
  if (!IsLogit(found.logit)) return NoLogit(found.logit, static_cast<size_t>(found.token), size);
  if (found.logit == kForbidden) return NoneAllowed(size);
  return found.token;
}

SampleResult Logprobs(std::span<const float> logits, TokenId token, int count) {
  SampleResult result;
  result.token = token;
  AddLogprobs(logits, count, &result);
  return result;
}

Result<SampleResult> Sample(std::span<const float> logits, const SamplingParams& params, const TokenHistory& history,
                            uint64_t request, int64_t position, std::span<const uint64_t> allowed) {
  TRY(Validate(params));
  TRY(CheckLogits(logits));
  std::vector<float> changed;
  if (!allowed.empty() || !params.logit_bias.empty() || HasPenalty(params)) {
    TRY_ASSIGN(changed, Process(logits, params, history, allowed));
  }
  const std::span<const float> processed = changed.empty() ? logits : changed;
  const TokenId greatest = processed.empty() ? TokenId{0} : Greatest(processed);
  const float best = processed.empty() ? kForbidden : processed[static_cast<size_t>(greatest)];
  if (best == kForbidden) return NoneAllowed(logits.size());
  if (best == std::numeric_limits<float>::infinity()) return CheckLogits(processed).error();  // a penalty overflowed
  SampleResult result;
  result.token = DrawBy(RuleOf(params, request, position), processed, {greatest, best});
  if (params.logprobs >= 0) AddLogprobs(logits, params.logprobs, &result);
  return result;
}

}  // namespace trivet::sampling
