// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "base/str.h"
#include "checkpoint/writer.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "engine/prompts.h"
#include "engine/scoring.h"

namespace trivet::cli {
namespace {

struct ScoreFlags {
  EngineFlags engine;
  ProofFlags proof;
  std::string tokens, text, out;
  bool hidden = false, last = false, logprobs = false, perplexity = false;
};

// Sequences to score, and whether the file held a single one (which decides the names in the output).
struct Sequences {
  std::vector<std::vector<TokenId>> ids;
  bool single = true;
};

Result<std::vector<TokenId>> TokenList(const Json& list, const std::string& what) {
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected token ids, found {}; give a list of integers or a list of "
                                   "such lists",
                                   what, DumpJson(id).substr(0, 60)));
    }
    ids.push_back(id.get<TokenId>());
  }
  if (ids.empty()) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected at least one token, found none; nothing to score", what));
  }
  return ids;
}

Result<Sequences> ReadSequences(const ScoreFlags& flags, const engine::OpenedModel& model) {
  Sequences sequences;
  if (!flags.text.empty()) {
    TRY_ASSIGN(const std::string dir, flags.engine.layout.Directory());
    TRY_ASSIGN(const engine::Prompts prompts, engine::Prompts::Open(dir, model.checkpoint));
    TRY_ASSIGN(std::vector<TokenId> ids, prompts.EncodeText(flags.text));
    sequences.ids.push_back(std::move(ids));
    return sequences;
  }
  TRY_ASSIGN(const Json file, ReadJsonFile(flags.tokens));
  sequences.single = !file.is_array() || file.empty() || !file[0].is_array();
  if (sequences.single) {
    if (!file.is_array()) {
      return MakeError(Code::kInvalid,
                       fmt::format("{}: expected a list of token ids, found {}; see trivet score --help", flags.tokens,
                                   file.type_name()));
    }
    TRY_ASSIGN(std::vector<TokenId> ids, TokenList(file, flags.tokens));
    sequences.ids.push_back(std::move(ids));
    return sequences;
  }
  for (const Json& list : file) {
    TRY_ASSIGN(std::vector<TokenId> ids, TokenList(list, flags.tokens));
    sequences.ids.push_back(std::move(ids));
  }
  return sequences;
}

// One tensor of the output and its bytes.
struct Output {
  checkpoint::TensorDecl decl;
  std::span<const std::byte> bytes;
};

Status WriteOutputs(const std::string& path, const std::vector<Output>& outputs) {
  std::vector<checkpoint::TensorDecl> decls;
  for (const Output& output : outputs) decls.push_back(output.decl);
  TRY_ASSIGN(checkpoint::SafetensorsWriter writer,
             checkpoint::SafetensorsWriter::Create(path, decls, {{"format", "pt"}}));
  for (const Output& output : outputs) TRY(writer.Append(output.bytes));
  return writer.Finish();
}

Status WriteScores(const ScoreFlags& flags, const plan::Geometry& geometry, const Sequences& sequences,
                   const std::vector<engine::ScoredSequence>& scored) {
  std::vector<Output> outputs;
  for (size_t i = 0; i < scored.size(); ++i) {
    const std::string suffix = sequences.single ? "" : fmt::format(".{}", i);
    const auto rows = static_cast<int64_t>(scored[i].logits.size()) / geometry.vocab;
    const std::vector<TokenId>& ids = sequences.ids[i];
    outputs.push_back(
        {{"logits" + suffix, tensor::DType::kF32, {rows, geometry.vocab}}, std::as_bytes(std::span(scored[i].logits))});
    for (size_t layer = 0; layer < scored[i].hidden.size(); ++layer) {
      const std::vector<float>& hidden = scored[i].hidden[layer];
      outputs.push_back({{fmt::format("hidden.{}{}", layer, suffix),
                          tensor::DType::kF32,
                          {static_cast<int64_t>(hidden.size()) / geometry.hidden, geometry.hidden}},
                         std::as_bytes(std::span(hidden))});
    }
    outputs.push_back(
        {{"tokens" + suffix, tensor::DType::kI32, {static_cast<int64_t>(ids.size())}}, std::as_bytes(std::span(ids))});
  }
  return WriteOutputs(flags.out, outputs);
}

// {"index", "tokens", "logprobs", "perplexity"} per sequence, one line each.
void PrintLogprobs(const ScoreFlags& flags, const plan::Geometry& geometry, const Sequences& sequences,
                   const std::vector<engine::ScoredSequence>& scored) {
  for (size_t i = 0; i < scored.size(); ++i) {
    const std::vector<double> logprobs = engine::TokenLogprobs(sequences.ids[i], scored[i].logits, geometry.vocab);
    const double sum = std::accumulate(logprobs.begin(), logprobs.end(), 0.0);
    Json line = {{"index", i}, {"tokens", sequences.ids[i].size()}};
    if (flags.logprobs) line["logprobs"] = logprobs;
    if (flags.perplexity) {
      line["perplexity"] = logprobs.empty() ? Json() : Json(std::exp(-sum / static_cast<double>(logprobs.size())));
    }
    std::puts(DumpJson(line).c_str());
  }
}

// Refuses to write over what is read.
Status CheckPaths(const ScoreFlags& flags) {
  std::error_code ignored;
  const auto same = [&](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && (a == b || std::filesystem::equivalent(a, b, ignored));
  };
  TRY_ASSIGN(const std::string dir, flags.engine.layout.Directory());
  const std::string folder = std::filesystem::path(flags.out).parent_path().string();
  if (same(flags.out, flags.tokens) || same(flags.out, dir) ||
      (same(folder, dir) && std::filesystem::exists(flags.out, ignored))) {
    return MakeError(Code::kUsage,
                     fmt::format("{}: expected a path that is not an input, found one; choose another", flags.out));
  }
  if (!flags.out.empty()) TRY(WritablePath(flags.out));
  return {};
}

Status Execute(const ScoreFlags& flags) {
  if (flags.out.empty() && !flags.logprobs && !flags.perplexity && flags.proof.dir.empty()) {
    return MakeError(Code::kUsage,
                     "score: expected something to do with the scores, found nothing; give --out, "
                     "--logprobs, --perplexity or --proof");
  }
  if (flags.tokens.empty() == flags.text.empty()) {
    return MakeError(Code::kUsage,
                     "score: expected one of --tokens FILE.json and --text TEXT, found none or both; give one");
  }
  if (flags.last && (flags.logprobs || flags.perplexity)) {
    return MakeError(Code::kUsage,
                     "score: expected --last without --logprobs and --perplexity, which need every "
                     "position; leave one out");
  }
  if (flags.hidden && flags.out.empty()) {
    return MakeError(Code::kUsage, "score: expected --out FILE beside --hidden, found none; give one");
  }
  TRY_ASSIGN(engine::EngineOptions options, flags.engine.Options());
  TRY(CheckPaths(flags));
  TRY_ASSIGN(std::unique_ptr<engine::OpenedModel> model, OpenFor(flags.engine));
  TRY_ASSIGN(const Sequences sequences, ReadSequences(flags, *model));
  TRY(flags.proof.Fill("score", &options));
  const FileWatch watch(flags.out);
  TRY_ASSIGN(const Loaded loaded, Load(flags.engine, options, std::move(model)));
  TRY_ASSIGN(const std::vector<engine::ScoredSequence> scored,
             engine::Score(loaded.engine.get(), {sequences.ids, flags.last, flags.hidden}));
  if (loaded.engine->saturated()) {
    std::fprintf(stderr, "notice: some sums saturated; the logits are those of saturated sums\n");
  }
  SayForced(flags.engine, *loaded.engine);
  const plan::Geometry& geometry = loaded.model->geometry;
  if (flags.logprobs || flags.perplexity) PrintLogprobs(flags, geometry, sequences, scored);
  if (!flags.out.empty()) TRY(WriteScores(flags, geometry, sequences, scored));
  return loaded.engine->SealProof();
}

}  // namespace

Run AddScore(CLI::App* app) {
  auto flags = std::make_shared<ScoreFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->engine.Add(app);
  app->add_option("--tokens", flags->tokens, "JSON file: a list of token ids, or a list of lists scored as one batch");
  app->add_option("--text", flags->text, "text to score");
  app->add_option("--out", flags->out, "safetensors file for logits [T, V] and tokens (numbered for a batch)");
  app->add_flag("--hidden", flags->hidden, "also hidden.L [T, H] after every block");
  app->add_flag("--last", flags->last, "only the last position's logits");
  app->add_flag("--logprobs", flags->logprobs, "print log-probabilities of the tokens as JSON lines");
  app->add_flag("--perplexity", flags->perplexity, "print perplexities as JSON lines");
  flags->proof.Add(app, "");
  flags->engine.AddRoutes(app);
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
