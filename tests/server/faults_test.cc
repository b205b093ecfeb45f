// SPDX-License-Identifier: Apache-2.0
// Clients and ranks that misbehave while others are served: sockets of our own, against the program.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>

#include "tests/server/serve_program.h"
#include "tests/support/sanitizer.h"

namespace trivet::server {
namespace {

using testing::HasSubstr;

// What tests allow for a second of an ordinary build.
constexpr int64_t kPatientSecond = (support::kSanitized ? 10 : 1) * kSecond;

// A connection that does what it is told and no more.
class Socket {
 public:
  // With `receive_bytes`, the kernel keeps about that much of what is not read.
  explicit Socket(int port, int receive_bytes = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Socket() { Close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Closes with a reset, as a client does that was killed with unread data.
  void Reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    Close();
  }
  void Send(const std::string& text) const {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  void Post(const Json& body) const {
    const std::string text = DumpJson(body);
    Send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(text.size()) +
         "\r\nConnection: close\r\n\r\n" + text);
  }
  // What comes until `end` is among it, the other side closes, or time is over.
  std::string ReadUntil(const std::string& end, int64_t wait_us = 60 * kPatientSecond) const {
    std::string text;
    char buffer[1 << 16];
    for (const int64_t until = NowUs() + wait_us; text.find(end) == std::string::npos && NowUs() < until;) {
      pollfd polled{fd_, POLLIN, 0};
      if (::poll(&polled, 1, 100) <= 0) continue;
      const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int fd_;
};

class Faults : public ServeProgram {
 protected:
  using Sockets = std::vector<std::unique_ptr<Socket>>;

  // Streams that have all begun or wait.
  Sockets Streams(int count, const Json& body) const {
    Sockets sockets;
    for (int i = 0; i < count; ++i) {
      sockets.push_back(std::make_unique<Socket>(port_));
      sockets.back()->Post(body);
    }
    return sockets;
  }

  double Metric(const std::string& name) const {
    httplib::Client client("127.0.0.1", port_);
    const httplib::Result result = client.Get("/metrics");
    const std::string key = "\ntrivet_" + name + "{";
    const size_t at = result ? result->body.find(key) : std::string::npos;
    return at == std::string::npos ? -1 : std::stod(result->body.substr(result->body.find("} ", at) + 2));
  }
  bool Becomes(const std::string& name, double value, int64_t wait_us) const {
    for (const int64_t until = NowUs() + wait_us; NowUs() < until; ::usleep(5000)) {
      if (Metric(name) == value) return true;
    }
    return false;
  }

  // A short answer, which must be what it always is.
  void ExpectAnAnswer() const {
    Json body = OneTurn("Omar has 90 shells and buys 85 more. How many shells does Omar have now?");
    body["temperature"] = 0;
    httplib::Client client("127.0.0.1", port_);
    client.set_read_timeout(60);
    const httplib::Result result = client.Post("/v1/chat/completions", DumpJson(body), "application/json");
    ASSERT_TRUE(result);
    EXPECT_THAT(result->body, HasSubstr("90 + 85 = 175. There are 175 shells."));
  }
};

TEST_F(Faults, AKilledRankIsToldToAllStreams) {
  Start({"--ranks", "3", "--launch", "processes"});
  const Sockets streams = Streams(6, Endless());
  for (const auto& stream : streams) EXPECT_THAT(stream->ReadUntil("data: "), HasSubstr("200 OK"));
  ASSERT_NO_FATAL_FAILURE(KillRank());
  const int64_t killed = NowUs();
  for (const auto& stream : streams) EXPECT_THAT(stream->ReadUntil("\"error\":"), HasSubstr("rank "));
  EXPECT_LT(NowUs() - killed, 2 * kPatientSecond);
  EXPECT_EQ(End(), 9);
}

// Nobody asks for anything, and a rank's process is gone: probes and requests are told why, and it ends.
TEST_F(Faults, ARankKilledWhileIdleIsToldToWhoeverAsksNext) {
  Start({"--ranks", "3", "--launch", "processes"});
  httplib::Client client("127.0.0.1", port_);
  ASSERT_EQ(client.Get("/health")->status, 200);
  ASSERT_NO_FATAL_FAILURE(KillRank());
  const int64_t killed = NowUs();
  httplib::Result health = client.Get("/health");
  while (health && health->status == 200 && NowUs() - killed < 2 * kPatientSecond) {
    ::usleep(5000);
    health = client.Get("/health");
  }
  ASSERT_TRUE(health) << "it ended without a word";
  EXPECT_EQ(health->status, 503);
  EXPECT_THAT(health->body, HasSubstr("rank 1: expected its process"));
  const httplib::Result chat = client.Post("/v1/chat/completions", DumpJson(Endless()), "application/json");
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->status, 503);
  EXPECT_THAT(chat->body, HasSubstr("killed by signal 9"));
  EXPECT_EQ(End(), 9);
  EXPECT_LT(NowUs() - killed, 2 * kPatientSecond);
  EXPECT_THAT(Errors(), HasSubstr("killed by signal 9"));
}

TEST_F(Faults, ARankKilledWhileItLoadsEndsTheProgram) {
  bool loading = false;
  for (int attempt = 0; attempt < 5 && !loading; ++attempt) {
    ASSERT_NO_FATAL_FAILURE(Spawn({"--ranks", "3", "--launch", "processes"}));
    const int64_t begun = NowUs();
    while (Child() == 0 && NowUs() - begun < 10 * kPatientSecond) ::usleep(200);
    ASSERT_NO_FATAL_FAILURE(KillRank());
    const int64_t killed = NowUs();
    loading = Line().empty();  // or it was quicker than this test, and serves
    EXPECT_EQ(End(), 9);
    EXPECT_LT(NowUs() - killed, 2 * kPatientSecond);
    EXPECT_THAT(Errors(), HasSubstr("rank 1: expected its process"));
  }
  EXPECT_TRUE(loading);
}

TEST_F(Faults, ClientsOfFourTimesTheSlotsLeave) {
  Start({"--max-num-seqs", "4"});
  Sockets streams = Streams(16, Endless());
  ASSERT_TRUE(Becomes("requests_running", 4, 20 * kPatientSecond) &&
              Becomes("requests_waiting", 12, 20 * kPatientSecond));
  for (size_t i = 0; i < streams.size(); ++i) i % 2 == 0 ? streams[i]->Close() : streams[i]->Reset();
  EXPECT_TRUE(Becomes("requests_cancelled_total", 16, 2 * kPatientSecond)) << Metric("requests_cancelled_total");
  EXPECT_EQ(Metric("requests_running"), 0);
  EXPECT_EQ(Metric("requests_waiting"), 0);
  EXPECT_EQ(Metric("kv_cache_usage"), 0);
  ExpectAnAnswer();
}

// Connections that stop in the middle of a request hold a thread, not the others, and not the end.
TEST_F(Faults, HalfRequestsHoldUpNobody) {
  Start({});
  Sockets half;
  const std::string texts[] = {
      "", "POST /v1/chat/comp", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n",
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{\"model\""};
  for (int i = 0; i < 40; ++i) {
    half.push_back(std::make_unique<Socket>(port_));
    half.back()->Send(texts[i % 4]);
  }
  ExpectAnAnswer();
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(End(), 0);
}

TEST_F(Faults, ABodyOfUnknownLengthIsAnsweredAtOnce) {
  Start({});
  for (const char* method : {"POST", "PUT", "PATCH"}) {
    const Socket socket(port_);
    socket.Send(std::string(method) + " /tokenizer_info HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(socket.ReadUntil("found none", 5 * kPatientSecond), HasSubstr("411")) << method;
  }
  ExpectAnAnswer();
}

// A reader that takes nothing delays neither the engine nor others, and gets the whole answer when it does.
TEST_F(Faults, ASlowReaderDelaysNobodyAndLosesNothing) {
  Start({"--max-num-seqs", "2"});
  Json body = Endless();
  body.update({{"logprobs", true}, {"top_logprobs", 20}, {"temperature", 0}, {"max_tokens", 1200}});
  const Socket slow(port_, 4096);
  slow.Post(body);
  ASSERT_TRUE(Becomes("requests_running", 1, 20 * kPatientSecond));
  ExpectAnAnswer();
  EXPECT_TRUE(Becomes("requests_ended_total", 2, 25 * kPatientSecond)) << "the engine waits for the reader";
  const std::string late = slow.ReadUntil("data: [DONE]");
  const Socket quick(port_);
  quick.Post(body);
  const std::string text = quick.ReadUntil("data: [DONE]");
  EXPECT_THAT(text, HasSubstr("data: [DONE]"));
  EXPECT_GT(late.size(), size_t{3} << 19) << "too little to fill the buffers on the way";
  const auto tokens = [](const std::string& all) {
    size_t count = 0;
    for (size_t at = 0; (at = all.find("\"top_logprobs\"", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(tokens(late), tokens(text));
  EXPECT_EQ(tokens(late), 1200U);
}

TEST_F(Faults, SigtermUnderLoadEndsAllAnswers) {
  Start({"--ranks", "3", "--max-num-seqs", "4"});
  Json body = Endless();
  body["max_tokens"] = 60;
  const Sockets streams = Streams(12, body);
  EXPECT_THAT(streams[0]->ReadUntil("data: "), HasSubstr("200 OK"));
  ASSERT_TRUE(Becomes("requests_total", 12, 20 * kPatientSecond));
  ::kill(pid_, SIGTERM);
  for (const auto& stream : streams) {
    EXPECT_THAT(stream->ReadUntil("data: [DONE]\n\n"), HasSubstr("\"finish_reason\":\"length\""));
  }
  EXPECT_EQ(End(), 0);
}

}  // namespace
}  // namespace trivet::server
