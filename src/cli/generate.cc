// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/compare_ranks.h"
#include "cli/generate_flags.h"
#include "cli/plan_table.h"
#include "engine/constraints.h"

namespace trivet::cli {
namespace {

// What the command line asks for, ready to be run.
struct Asked {
  std::vector<TokenId> prompt;                   // a single one
  std::vector<engine::GenerationRequest> batch;  // of --prompts
};

// A prompt's text: the flag's, or standard input.
Result<std::string> PromptText(const GenerateFlags& flags) {
  if (flags.prompt_given) return flags.prompt;
  if (::isatty(STDIN_FILENO) == 1) {
    return MakeError(Code::kUsage,
                     "generate: expected --prompt, --chat, --prompts or text on standard input, found none; "
                     "give one");
  }
  return ReadStandardInput();
}

// Nothing for a chat, whose messages come later.
Result<Asked> ReadAsked(const GenerateFlags& flags, const engine::Prompts& prompts, int64_t vocab,
                        const engine::GenerationRequest& base) {
  Asked asked;
  if (flags.chat && !prompts.has_template()) {
    return MakeError(Code::kUnsupported,
                     "--chat: expected a model with a chat template, found none; give --prompt to continue a text");
  }
  if (flags.chat) return asked;
  if (!flags.prompts.empty()) {
    TRY_ASSIGN(asked.batch, ReadPromptFile(flags, prompts, vocab, base));
    return asked;
  }
  TRY_ASSIGN(const std::string text, PromptText(flags));
  if (!flags.raw && !prompts.has_template() && !flags.engine.quiet) {
    std::fputs("notice: no chat template: the prompt is continued as plain text\n", stderr);
  }
  TRY_ASSIGN(asked.prompt, EncodePrompt(flags, prompts, text));
  TRY(engine::CheckTokens(asked.prompt, vocab));
  return asked;
}

// Everything a run of `generate` needs, loaded.
struct Session {
  const GenerateFlags& flags;
  Loaded loaded;
  const engine::Prompts& prompts;
  engine::GenerationRequest base;  // sampling and limits of every request
};

Json LogprobsJson(const Session& session, const engine::Generation& generation) {
  Json all = Json::array();
  for (const sampling::SampleResult& result : generation.logprobs) {
    Json top = Json::array();
    for (const auto& [token, logprob] : result.top) {
      top.push_back({{"id", token}, {"token", session.prompts.tokenizer().TokenText(token)}, {"logprob", logprob}});
    }
    all.push_back({{"id", result.token},
                   {"token", session.prompts.tokenizer().TokenText(result.token)},
                   {"logprob", result.logprob},
                   {"top", top}});
  }
  return all;
}

void PrintJson(const Session& session, const engine::Generation& generation) {
  Json line = {{"index", generation.index},
               {"text", generation.text},
               {"token_ids", generation.tokens},
               {"finish_reason", engine::FinishReasonName(generation.finish)},
               {"prompt_tokens", generation.prompt.size()}};
  if (!generation.logprobs.empty()) line["logprobs"] = LogprobsJson(session, generation);
  std::puts(DumpJson(line).c_str());
  std::fflush(stdout);
}

// After a text, for people.
void PrintLogprobs(const Session& session, const engine::Generation& generation) {
  if (!generation.logprobs.empty()) std::puts(DumpJson(LogprobsJson(session, generation), 1).c_str());
}

void PrintTimes(const Session& session, const engine::Generator& generator) {
  if (session.flags.engine.quiet) return;
  const engine::Generator::Times& times = generator.times();
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  std::fprintf(
      stderr, "ranks %ld, load %.2f s, prompt %ld tokens at %.0f tokens/s, decode %ld tokens at %.0f tokens/s\n",
      session.loaded.engine->layout().world(), session.loaded.engine->times().load_s, times.prompt_tokens,
      rate(times.prompt_tokens, times.prompt_s), times.decode_tokens, rate(times.decode_tokens, times.decode_s));
  if (session.loaded.engine->saturated()) std::fprintf(stderr, "notice: some sums saturated; see docs/numerics.md\n");
}

// One request, streamed to standard output as text. Returns what was generated.
Result<engine::Generation> Stream(Session* session, std::vector<TokenId> prompt, engine::Generator* generator) {
  engine::GenerationRequest request = session->base;
  request.prompt = std::move(prompt);
  TRY(generator->Submit(std::move(request)));
  engine::Generation last;
  TRY(generator->Run([&](const engine::Generation& generation, const std::string& piece) {
    if (!session->flags.json) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    }
    if (generation.finish != engine::FinishReason::kNone) last = generation;
  }));
  if (session->flags.json) {
    PrintJson(*session, last);
  } else {
    std::puts("");
    std::fflush(stdout);  // before anything follows on standard error
    PrintLogprobs(*session, last);
  }
  return last;
}

// All lines of a file as one continuous batch; one JSON object or one text each, in the order they end.
Status Batch(Session* session, std::vector<engine::GenerationRequest> requests, engine::Generator* generator) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const Result<int64_t> submitted = generator->Submit(std::move(requests[i]));
    if (!submitted.ok()) {
      return MakeError(submitted.error().code, fmt::format("{}, prompt {} of it: {}", session->flags.prompts, i + 1,
                                                           submitted.error().message));
    }
  }
  return generator->Run([&](const engine::Generation& generation, const std::string&) {
    if (generation.finish == engine::FinishReason::kNone) return;
    if (session->flags.json) return PrintJson(*session, generation);
    std::printf("[%ld] %s\n", generation.index, generation.text.c_str());
    PrintLogprobs(*session, generation);
    std::fflush(stdout);
  });
}

// Reads lines, answers each with the conversation so far.
Status Chat(Session* session, engine::Generator* generator) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) std::fputs("Type a message; /reset forgets the conversation, /exit or Ctrl-D ends it.\n", stderr);
  Json messages = Json::array();
  const auto reset = [&] {
    messages = Json::array();
    if (!session->flags.system.empty()) messages.push_back({{"role", "system"}, {"content", session->flags.system}});
  };
  reset();
  std::string line;
  while (true) {
    if (terminal) std::fputs("> ", stderr);
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/reset") {
      reset();
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", RepairUtf8(line)}});
    Result<std::vector<TokenId>> prompt = session->prompts.EncodeChat({{"messages", messages}});
    if (!prompt.ok()) return prompt.error();
    Result<engine::Generation> answer = Stream(session, std::move(prompt).value(), generator);
    if (terminal && !answer.ok() && answer.error().code == Code::kCapacity) {
      std::fprintf(stderr, "%s; /reset starts over\n", answer.error().message.c_str());
      messages.erase(messages.size() - 1);
      continue;
    }
    TRY(answer);
    messages.push_back({{"role", "assistant"}, {"content", answer->text}});
  }
  return {};
}

// One prompt.
Status Single(Session* session, std::vector<TokenId> prompt, engine::Generator* generator) {
  TRY_ASSIGN(const engine::Generation answer, Stream(session, std::move(prompt), generator));
  PrintTimes(*session, *generator);
  if (session->flags.compare_ranks == 0) return {};
  std::vector<TokenId> all = answer.prompt;
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  TRY_ASSIGN(const engine::EngineOptions options, session->flags.engine.Options());
  return CompareRanks(*session->loaded.model, options, session->flags.compare_ranks, all);
}

void ShowPlan(const Session& session) {
  const engine::Engine& engine = *session.loaded.engine;
  std::fprintf(stderr, "\n%s\n",
               RenderLayoutTable(session.loaded.model->geometry, engine.layout(), engine.cost()).c_str());
}

Status Execute(const GenerateFlags& flags) {
  TRY_ASSIGN(engine::EngineOptions options, flags.engine.Options());
  TRY(flags.proof.Fill("generate", &options));
  TRY_ASSIGN(const std::string dir, flags.engine.layout.Directory());
  TRY_ASSIGN(std::unique_ptr<engine::OpenedModel> model, OpenFor(flags.engine));
  // What else can be wrong of flags, files and tokens is found before the weights, which take the longest. How long a
  // prompt may be depends on the memory that they leave.
  TRY_ASSIGN(const engine::Prompts prompts, engine::Prompts::Open(dir, model->checkpoint));
  TRY_ASSIGN(engine::GenerationRequest base, BaseRequest(flags, model->files.generation_config));
  engine::Constraints constraints(&prompts.tokenizer(), model->files.stop_tokens);
  if (!flags.json_schema.empty()) {
    TRY_ASSIGN(const Json schema, ReadJsonFile(flags.json_schema));
    TRY_ASSIGN(base.constraint, constraints.Schema(schema, flags.json_schema));
  }
  TRY_ASSIGN(Asked asked, ReadAsked(flags, prompts, model->geometry.vocab, base));
  TRY_ASSIGN(Loaded loaded, Load(flags.engine, options, std::move(model)));
  Session session{flags, std::move(loaded), prompts, std::move(base)};
  if (flags.show_plan) ShowPlan(session);
  engine::Generator generator(session.loaded.engine.get(), &prompts.tokenizer(),
                              session.loaded.model->files.stop_tokens);
  if (flags.chat) {
    TRY(Chat(&session, &generator));
  } else if (flags.prompts.empty()) {
    TRY(Single(&session, std::move(asked.prompt), &generator));
  } else {
    TRY(Batch(&session, std::move(asked.batch), &generator));
    PrintTimes(session, generator);
  }
  SayForced(flags.engine, *session.loaded.engine);
  return session.loaded.engine->SealProof();
}

}  // namespace

Run AddGenerate(CLI::App* app) {
  auto flags = std::make_shared<GenerateFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->Add(app);
  return [flags, app]() -> Status {
    flags->prompt_given = app->count("--prompt") > 0;
    return Execute(*flags);
  };
}

}  // namespace trivet::cli
