// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/plan_table.h"
#include "cli/signals.h"
#include "engine/constraints.h"
#include "engine/prompts.h"
#include "engine/request_options.h"
#include "engine/service.h"
#include "plan/plan_json.h"
#include "server/api.h"
#include "server/http_server.h"

namespace trivet::cli {
namespace {

// How long whoever asks a server whose run has failed still gets the cause: probes come every second or so, and a
// connection that is refused tells them nothing. It leaves room to notice and to end within the two seconds promised.
constexpr std::chrono::milliseconds kTellCause{1000};

struct ServeFlags {
  EngineFlags engine;
  server::HttpOptions http;
  std::string name;
  double drain_seconds = 30, request_seconds = 0;
  int64_t piece_interval_ms = engine::Service::kPieceIntervalUs / 1000;
};

server::ServedModel Served(const ServeFlags& flags, const Loaded& loaded, const engine::Prompts& prompts,
                           const sampling::SamplingParams& sampling, engine::Constraints* constraints) {
  server::ServedModel served;
  served.constraints = constraints;
  served.name = flags.name.empty() ? loaded.model->name : flags.name;
  served.prompts = &prompts;
  served.defaults.sampling = sampling;
  served.end_tokens = loaded.model->files.stop_tokens;
  served.max_context = loaded.engine->limits().max_context;
  served.vocab = loaded.model->geometry.vocab;
  served.tool_style = engine::ToolStyleOf(prompts);
  served.plan = plan::PlanJson(loaded.model->geometry, loaded.engine->layout(), loaded.engine->cost());
  served.request_limit_us = static_cast<int64_t>(flags.request_seconds * 1e6);
  return served;
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Status Execute(const ServeFlags& flags) {
  if (!(flags.drain_seconds >= 0 && flags.drain_seconds <= 86400)) {
    return MakeError(Code::kUsage, fmt::format("--drain-seconds: expected 0 to 86400, found {}; choose a value in that "
                                               "range",
                                               flags.drain_seconds));
  }
  if (!(flags.request_seconds >= 0 && flags.request_seconds <= 86400)) {
    return MakeError(Code::kUsage, fmt::format("--request-seconds: expected 0 to 86400, found {}; choose a value in "
                                               "that range",
                                               flags.request_seconds));
  }
  if (flags.piece_interval_ms < 0 || flags.piece_interval_ms > 100) {
    return MakeError(Code::kUsage, fmt::format("--piece-interval: expected 0 to 100, found {}; choose a value in that "
                                               "range",
                                               flags.piece_interval_ms));
  }
  TRY_ASSIGN(const engine::EngineOptions options, flags.engine.Options());
  // Before the weights, which take the longest: that another server has the port is found at once.
  TRY_ASSIGN(server::HttpServer::Listener listener, server::HttpServer::Listener::Bind(flags.http));
  TRY_ASSIGN(const std::string dir, flags.engine.layout.Directory());
  TRY_ASSIGN(std::unique_ptr<engine::OpenedModel> model, OpenFor(flags.engine));
  TRY_ASSIGN(const engine::Prompts prompts, engine::Prompts::Open(dir, model->checkpoint));
  TRY_ASSIGN(const sampling::SamplingParams sampling, engine::DefaultSampling(model->files.generation_config));
  HoldSignals();
  TRY_ASSIGN(const Loaded loaded, Load(flags.engine, options, std::move(model), ObeySignals));
  engine::Constraints constraints(&prompts.tokenizer(), loaded.model->files.stop_tokens);
  server::ServedModel served = Served(flags, loaded, prompts, sampling, &constraints);
  engine::Service service(loaded.engine.get(), &prompts.tokenizer(), loaded.model->files.stop_tokens,
                          flags.piece_interval_ms * 1000);
  server::Api api(&service, std::move(served), TRIVET_VERSION, UnixSeconds());
  const std::unique_ptr<server::HttpServer> http = server::HttpServer::Start(&api, std::move(listener));
  int64_t wait_us = static_cast<int64_t>(flags.drain_seconds * 1e6);
  const SignalWatch watch([&](int) {
    http->StopAccepting();
    service.Drain(std::exchange(wait_us, 0));  // a second signal does not wait
  });
  if (!flags.engine.quiet) std::fputs(RenderMemoryTable(loaded.engine->memory()).c_str(), stderr);
  std::printf("serving %s on %ld ranks at %s\n", loaded.model->name.c_str(), loaded.engine->layout().world(),
              http->url().c_str());
  std::fflush(stdout);
  const Status ran = service.Run();
  if (!ran.ok()) std::this_thread::sleep_for(kTellCause);
  http->Stop();
  return ran;
}

}  // namespace

Run AddServe(CLI::App* app) {
  auto flags = std::make_shared<ServeFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->engine.sizes.prefix_cache = "on";
  flags->engine.Add(app);
  RefuseEmpty(app->add_option("--host", flags->http.host, "address to listen on"));  // it would be every one
  app->add_option("--port", flags->http.port,
                  "port to listen on; 0 takes a free one, which the line at the start names");
  app->add_option("--api-key", flags->http.api_key,
                  "key that every request but /health must carry as \"Authorization: Bearer KEY\"; none when empty");
  app->add_option("--served-model-name", flags->name, "name of the model in requests and answers; MODEL when empty");
  app->add_option(
      "--piece-interval", flags->piece_interval_ms,
      "milliseconds, 0 to 100, between the pieces of one stream while a step serves more than four choices; "
      "0 sends every token by itself");
  app->add_option("--request-seconds", flags->request_seconds,
                  "time for a request from its submission to its end; 0 is none");
  app->add_option("--drain-seconds", flags->drain_seconds,
                  "after SIGTERM or SIGINT, time for answers under way to end; a second signal ends them at once");
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
