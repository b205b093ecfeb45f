// SPDX-License-Identifier: Apache-2.0
// The demo model as the server's tests use it: its text side alone, or a service that a thread runs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "engine/prompts.h"
#include "engine/service.h"
#include "server/api.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet::server {

/// Tokenizer, template and facts of the demo model.
class DemoModel {
 public:
  DemoModel() {
    served_.name = "demo";
    served_.prompts = &prompts_;
    served_.constraints = &constraints_;
    served_.defaults.sampling.temperature = 0;
    served_.end_tokens = model_.files.stop_tokens;
    served_.max_context = model_.geometry.max_positions;
    served_.vocab = model_.geometry.vocab;
  }
  const ServedModel& served() const { return served_; }
  const engine::OpenedModel& opened() const { return model_; }
  const engine::Prompts& prompts() const { return prompts_; }

 private:
  const engine::OpenedModel model_ = support::Open(DemoDir());
  const engine::Prompts prompts_ = engine::Prompts::Open(DemoDir()).value();
  engine::Constraints constraints_{&prompts_.tokenizer(), model_.files.stop_tokens};
  ServedModel served_;
};

/// A service on it.
class DemoService {
 public:
  explicit DemoService(const engine::EngineOptions& options = {}) {
    auto engine = engine::Engine::Start(model_.opened(), options, {});
    CHECK_MSG(engine.ok(), engine.error().message);
    engine_ = std::move(engine).value();
    service_ =
        std::make_unique<engine::Service>(engine_.get(), &model_.prompts().tokenizer(), model_.served().end_tokens);
    api_ = std::make_unique<Api>(service_.get(), model_.served(), "9.9", 1234567890);
    runner_ = std::thread([this] { ran_ = service_->Run(); });
  }
  ~DemoService() { (void)End(); }

  /// Ends the service and gives back what Run returned.
  Status End() {
    service_->Drain(0);
    if (runner_.joinable()) runner_.join();
    return ran_;
  }

  /// What the engine gives without a server; only after End().
  std::string Alone(engine::GenerationRequest request) {
    engine::Generator generator(engine_.get(), &model_.prompts().tokenizer(), model_.served().end_tokens);
    CHECK(generator.Submit(std::move(request)).ok());
    std::string text;
    CHECK(generator.Run([&](const engine::Generation&, const std::string& piece) { text += piece; }).ok());
    return text;
  }

  /// Whether the service's counts come to satisfy `done` within twenty seconds.
  bool Becomes(const std::function<bool(const engine::ServiceCounts&)>& done) const {
    for (const int64_t until = NowUs() + 20000000; NowUs() < until;) {
      if (done(service_->counts())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  const DemoModel& model() const { return model_; }
  engine::Service& service() { return *service_; }
  Api& api() { return *api_; }

 private:
  const DemoModel model_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Service> service_;
  std::unique_ptr<Api> api_;
  std::thread runner_;
  Status ran_;
};

/// A chat of one user turn.
inline Json OneTurn(const std::string& text) {
  return {{"model", "demo"}, {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
}

}  // namespace trivet::server
