// SPDX-License-Identifier: Apache-2.0
// The flags of `generate`, and what they say about prompts and sampling.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "engine/generation.h"
#include "engine/prompts.h"

namespace trivet::cli {

/// What the command line said.
struct GenerateFlags {
  EngineFlags engine;
  ProofFlags proof;
  std::string prompt, prompts, system, json_schema;
  bool prompt_given = false;
  bool raw = false, chat = false, json = false, show_plan = false, ignore_eos = false;
  int64_t compare_ranks = 0;
  int64_t max_tokens = 0;
  std::vector<std::string> stop;
  // Unset ones take generation_config.json's value, then the default.
  std::optional<double> temperature, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int64_t> top_k, logprobs;
  std::string seed = "0";

  /// Adds the flags to a command.
  void Add(CLI::App* app);
};

/// Sampling and limits: flags over generation_config.json over defaults (greedy when that says do_sample false).
/// Errors:  kUsage, kInvalid name the parameter, its range and the value.
Result<engine::GenerationRequest> BaseRequest(const GenerateFlags& flags, const Json& generation_config);

/// Token ids of one prompt: a user turn through the chat template, or plain text with --raw or without a template.
Result<std::vector<TokenId>> EncodePrompt(const GenerateFlags& flags, const engine::Prompts& prompts,
                                          const std::string& text);

/// A request for every line of --prompts FILE.jsonl: {"prompt": text}, {"messages": [...]} or {"token_ids": [...]},
/// with the sampling and limits of `base` where the line has none of its own (engine/request_options.h), and beside
/// messages what Prompts::EncodeChat takes. Errors: kInvalid names the line; a key besides is one.
Result<std::vector<engine::GenerationRequest>> ReadPromptFile(const GenerateFlags& flags,
                                                              const engine::Prompts& prompts, int64_t vocab,
                                                              const engine::GenerationRequest& base);

}  // namespace trivet::cli
