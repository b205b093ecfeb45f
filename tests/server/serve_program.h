// SPDX-License-Identifier: Apache-2.0
// `trivet serve demo` as a process of its own, for tests of what happens to it from outside.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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
    ASSERT_NO_FATAL_FAILURE(Spawn(std::move(arguments)));
    const std::string line = Line();
    ASSERT_THAT(line, testing::HasSubstr("http://127.0.0.1:"));
    port_ = std::stoi(line.substr(line.rfind(':') + 1));
  }
  /// Starts it.
  void Spawn(std::vector<std::string> arguments) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    errors_.reset(std::tmpfile());
    ASSERT_NE(errors_, nullptr);
    arguments.insert(arguments.begin(), {ProgramPath(), "serve", "demo", "-q", "--port", "0"});
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(::fileno(errors_.get()), STDERR_FILENO);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  /// Its line, or nothing when it ends without one.
  std::string Line() {
    std::string line;
    char byte = 0;
    while (::read(output_, &byte, 1) == 1 && byte != '\n') line += byte;
    ::close(std::exchange(output_, -1));
    return line;
  }
  /// What it has written on standard error.
  std::string Errors() {
    std::string text(4096, '\0');
    const ssize_t got = ::pread(::fileno(errors_.get()), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return text;
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
    if (output_ >= 0) ::close(output_);
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

  /// The process of a rank other than 0; 0 while there is none.
  int Child() const {
    const std::string children = "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children";
    return std::atoi(ReadTextFile(children, 4096).value().c_str());
  }

  void KillRank() const {
    const int child = Child();
    ASSERT_GT(child, 0);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
  }

  int pid_ = -1;
  int port_ = 0;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  int output_ = -1;
  std::unique_ptr<std::FILE, Close> errors_;
};

}  // namespace trivet::server
