// SPDX-License-Identifier: Apache-2.0
// The server through its sockets, in this process and as the program.
#include "server/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>

#include "tests/server/demo_service.h"
#include "tests/server/serve_program.h"

namespace trivet::server {
namespace {

using testing::HasSubstr;

std::string Body(const httplib::Result& result) {
  return result ? result->body : "no answer: " + httplib::to_string(result.error());
}

class Http : public testing::Test {
 protected:
  explicit Http(const std::string& key = "") {
    auto listener = HttpServer::Listener::Bind({"127.0.0.1", 0, key});
    CHECK_MSG(listener.ok(), listener.error().message);
    server_ = HttpServer::Start(&demo_.api(), std::move(listener).value());
  }
  ~Http() override {
    demo_.service().Drain(0);
    server_->Stop();
  }

  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", server_->port());
    client.set_read_timeout(60);
    return client;
  }
  httplib::Result Post(const std::string& path, const Json& body) const {
    return Client().Post(path.c_str(), DumpJson(body), "application/json");
  }

  DemoService demo_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Http, SixteenStreamsAreWhatTheEngineGivesAlone) {
  constexpr size_t kStreams = 16;
  std::vector<std::string> texts(kStreams);
  std::vector<std::thread> clients;
  const auto asked = [](size_t i) {
    Json body = {{"model", "demo"}, {"prompt", "Count from " + std::to_string(i) + " to"}, {"max_tokens", 12}};
    body.update({{"temperature", i % 2 == 0 ? 0.0 : 1.3}, {"seed", i}, {"stream", true}});
    return body;
  };
  for (size_t i = 0; i < kStreams; ++i) {
    clients.emplace_back([&, i] {
      const std::string frames = Body(Post("/v1/completions", asked(i)));
      for (size_t at = 0; (at = frames.find("data: {", at)) != std::string::npos;) {
        at += 6;
        const Json event = ParseJson(frames.substr(at, frames.find("\n\n", at) - at), "event").value();
        texts[i] += event["choices"][0]["text"].get<std::string>();
      }
      EXPECT_THAT(frames, testing::EndsWith("data: [DONE]\n\n"));
    });
  }
  for (std::thread& client : clients) client.join();
  (void)demo_.End();
  for (size_t i = 0; i < kStreams; ++i) {
    ApiRequest request;
    ASSERT_TRUE(ReadCompletion(demo_.model().served(), asked(i), &request).ok());
    EXPECT_EQ(demo_.Alone(request.Requests()[0]), texts[i]) << i;
  }
}

TEST_F(Http, RoutesAndRefusals) {
  httplib::Client client = Client();
  client.set_keep_alive(true);
  EXPECT_EQ(ParseJson(Body(client.Get("/v1/models")), "models").value()["data"][0]["id"], "demo");
  EXPECT_EQ(client.Get("/v1/models/demo")->status, 200);
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_EQ(client.Get("/version")->status, 200);
  const auto error = [](const httplib::Result& result, int status) {
    EXPECT_EQ(result->status, status) << result->body;
    return ParseJson(result->body, "error").value()["error"];
  };
  EXPECT_EQ(error(client.Get("/v1/nothing"), 404)["code"], "not_found");
  EXPECT_EQ(error(client.Get("/v1/models/other"), 404)["code"], "model_not_found");
  EXPECT_EQ(error(client.Get("/v1/chat/completions"), 405)["type"], "invalid_request_error");
  EXPECT_EQ(error(client.Post("/v1/chat/completions", "{\"model\":", "application/json"), 400)["param"], Json());
  EXPECT_EQ(
      error(client.Post("/v1/completions", R"({"model": "demo", "prompt": 1})", "application/json"), 400)["param"],
      "prompt");
  const std::string large(static_cast<size_t>(kBodyLimits.max_bytes) + 1, ' ');
  EXPECT_EQ(error(client.Post("/tokenize", large, "application/json"), 413)["code"], Json());
  EXPECT_EQ(ParseJson(Body(Post("/tokenize", {{"prompt", "hi"}})), "ids").value()["count"], 1);
}

TEST_F(Http, ADisconnectFreesSlotAndPages) {
  for (const bool streams : {true, false}) {
    Json body = Endless();
    body["stream"] = streams;
    const int64_t before = demo_.service().counts().cancelled;
    httplib::Client client = Client();
    std::thread leaving([&] { (void)client.Post("/v1/chat/completions", DumpJson(body), "application/json"); });
    EXPECT_TRUE(demo_.Becomes([](const engine::ServiceCounts& counts) { return counts.scheduler.running == 1; }));
    client.stop();
    leaving.join();
    EXPECT_TRUE(demo_.Becomes([&](const engine::ServiceCounts& counts) { return counts.cancelled == before + 1; }));
    EXPECT_EQ(demo_.service().counts().scheduler.running, 0);
    EXPECT_EQ(demo_.service().counts().scheduler.free_pages, demo_.service().counts().pages);
  }
}

class HttpWithKey : public Http {
 protected:
  HttpWithKey() : Http("secret") {}
};

TEST_F(HttpWithKey, NothingButHealthWithoutIt) {
  httplib::Client client = Client();
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_EQ(client.Get("/v1/models")->status, 401);
  client.set_default_headers({{"Authorization", "Bearer other"}});
  const httplib::Result refused = client.Post("/v1/completions", R"({"model": "demo"})", "application/json");
  EXPECT_EQ(refused->status, 401);
  EXPECT_THAT(refused->body, HasSubstr("invalid_api_key"));
  client.set_default_headers({{"Authorization", "Bearer secret"}});
  EXPECT_EQ(client.Get("/v1/models")->status, 200);
}

TEST(HttpServerStart, AnAddressInUseIsRefused) {
  DemoService demo;
  using Listener = HttpServer::Listener;
  int port = 0;
  {
    auto listener = Listener::Bind({"127.0.0.1", 0, ""});
    ASSERT_TRUE(listener.ok());
    const auto first = HttpServer::Start(&demo.api(), std::move(listener).value());
    port = first->port();
    const auto second = Listener::Bind({"127.0.0.1", port, ""});
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kIo);
  }
  {
    const auto third = Listener::Bind({"127.0.0.1", port, ""});
    ASSERT_TRUE(third.ok()) << "the server has left it";
    EXPECT_FALSE(Listener::Bind({"127.0.0.1", port, ""}).ok()) << "which nobody answers on yet";
  }
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  EXPECT_TRUE(Listener::Bind({"127.0.0.1", port, ""}).ok()) << "which nobody ever answered on";
  EXPECT_EQ(descriptors(), before) << "a listener that never accepted leaves nothing open";
  EXPECT_FALSE(Listener::Bind({"127.0.0.1", 70000, ""}).ok());
}

// What is asked while the model is loaded is answered when it is.
TEST(HttpServerStart, ConnectionsWaitForTheirServer) {
  DemoService demo;
  auto listener = HttpServer::Listener::Bind({"127.0.0.1", 0, ""});
  ASSERT_TRUE(listener.ok());
  // The port is not known before the server is there: a free one, which the next listener takes.
  const int port = HttpServer::Start(&demo.api(), std::move(listener).value())->port();
  auto waiting = HttpServer::Listener::Bind({"127.0.0.1", port, ""});
  ASSERT_TRUE(waiting.ok());
  std::thread client([port] {
    httplib::Client early("127.0.0.1", port);
    early.set_read_timeout(60);
    const httplib::Result health = early.Get("/health");
    EXPECT_TRUE(health != nullptr && health->status == 200);
  });
  ::usleep(100000);
  const auto server = HttpServer::Start(&demo.api(), std::move(waiting).value());
  client.join();
}

// A port that is taken is found before the model is looked at.
TEST_F(ServeProgram, APortThatIsTakenIsFoundBeforeTheModel) {
  Start({});
  const std::string command = fmt::format("{} serve no-such-model --port {} 2>&1", ProgramPath(), port_);
  std::FILE* const other = ::popen(command.c_str(), "r");
  std::string said(4096, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), other));
  EXPECT_EQ(::pclose(other), 8 << 8);
  EXPECT_THAT(said, HasSubstr(fmt::format("127.0.0.1:{}: expected an address to listen on", port_)));
}

TEST_F(ServeProgram, SigtermLetsAnswersEnd) {
  Start({"--ranks", "3"});
  Json body = Endless();
  body["max_tokens"] = 60;
  const std::string text = Ask(body, [&] { ::kill(pid_, SIGTERM); });
  EXPECT_THAT(text, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_THAT(text, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(End(), 0);
}

TEST_F(ServeProgram, ASecondSignalDoesNotWait) {
  Start({});
  const std::string text = Ask(Endless(), [&] {
    ::kill(pid_, SIGINT);
    ::usleep(50000);
    ::kill(pid_, SIGINT);
  });
  EXPECT_THAT(text, HasSubstr("shutting down"));
  EXPECT_EQ(End(), 0);
}

TEST_F(ServeProgram, ADeadRankIsToldAndEndsIt) {
  Start({"--ranks", "3", "--launch", "processes", "--fault", "die:rank=1:step=3"});
  int64_t begun = 0;
  const std::string text = Ask(Endless(), [&] { begun = NowUs(); });
  EXPECT_LT(NowUs() - begun, 2 * kSecond);
  EXPECT_THAT(text, HasSubstr("rank 1"));
  EXPECT_EQ(End(), 9);
}

}  // namespace
}  // namespace trivet::server
