// SPDX-License-Identifier: Apache-2.0
// `trivet serve demo` as a process of its own, for tests of what happens to it from outside.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "tests/server/demo_service.h"
#include "tests/support/paths.h"

namespace trivet::server {

inline constexpr int64_t kSecond = 1000000;

/// A request that runs for the whole context.
inline Json Endless() {
  Json body = OneTurn("Count from 1 to 9.");
  body.update({{"max_tokens", 1900}, {"ignore_eos", true}, {"stream", true}});
  return body;
}

/// The program as an operator runs it.
class ServeProgram : public testing::Test {
 protected:
  /// Starts it and waits for its line; the port is then known.
  void Start(std::vector<std::string> arguments) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    arguments.insert(arguments.begin(), {ProgramPath(), "serve", "demo", "-q", "--port", "0"});
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    std::string line;
    char byte = 0;
    while (::read(ends[0], &byte, 1) == 1 && byte != '\n') line += byte;
    ::close(ends[0]);
    ASSERT_THAT(line, testing::HasSubstr("http://127.0.0.1:"));
    port_ = std::stoi(line.substr(line.rfind(':') + 1));
  }
  // Waits for its end; the status, or -1 after ten seconds.
  int End() {
    for (const int64_t until = NowUs() + 10 * kSecond; NowUs() < until;) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return -1;
  }
  ~ServeProgram() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  // Asks, calls `once` when the answer has begun, and returns the answer.
  std::string Ask(const Json& body, const std::function<void()>& once) {
    httplib::Client client("127.0.0.1", port_);
    client.set_read_timeout(60);
    std::string text;
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/chat/completions";
    request.body = DumpJson(body);
    request.headers = {{"Content-Type", "application/json"}};
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      if (text.empty()) once();
      text.append(data, size);
      return true;
    };
    (void)client.send(request);
    return text;
  }

  /// The process of a rank other than 0.
  int Child() const {
    const std::string children = "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children";
    return std::stoi(ReadTextFile(children, 4096).value());
  }

  int pid_ = -1;
  int port_ = 0;
};

}  // namespace trivet::server
