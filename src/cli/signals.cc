// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <csignal>
#include <filesystem>

#include "base/str.h"
#include "base/temporary.h"

namespace trivet::cli {
namespace {

sigset_t EndSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGHUP);  // a terminal that is closed
  ::sigaddset(&signals, SIGQUIT);
  return signals;
}

void RemoveInside(const std::string& path) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    std::filesystem::remove_all(entry.path(), ignored);
  }
}

// Removes what is in a folder, and the folder where it `goes`. The program goes on writing meanwhile: what came after
// one look goes at the next.
void RemoveFolder(const std::string& path, bool goes) {
  constexpr int kLooks = 1000;
  for (int look = 0; look < kLooks; ++look) {
    RemoveInside(path);
    std::error_code error;
    if (goes) std::filesystem::remove(path, error);
    if (!error && (goes || std::filesystem::is_empty(path, error))) return;
  }
}

// Ends the process by a signal that it holds.
void EndBy(int signal) {
  std::signal(signal, SIG_DFL);
  const sigset_t signals = EndSignals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  ::raise(signal);
}

}  // namespace

void HoldSignals() {
  const sigset_t signals = EndSignals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void ObeySignals() {
  const sigset_t signals = EndSignals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

SignalWatch::SignalWatch(std::function<void(int signal)> act) : act_(std::move(act)), thread_([this] { Wait(); }) {}

SignalWatch::~SignalWatch() {
  over_ = true;
  ::pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void SignalWatch::Wait() {
  const sigset_t signals = EndSignals();
  int signal = 0;
  while (::sigwait(&signals, &signal) == 0 && !over_) act_(signal);
}

namespace {

// Ends a watch, and lets signals end the process again.
void LetGo(std::unique_ptr<SignalWatch>* watch) {
  if (*watch == nullptr) return;
  watch->reset();
  const sigset_t signals = EndSignals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace

FolderWatch::FolderWatch(std::string path, bool made) : path_(std::move(path)) {
  std::error_code error;
  const bool absent = !std::filesystem::exists(std::filesystem::symlink_status(path_, error));
  const bool empty = std::filesystem::is_directory(path_, error) && std::filesystem::is_empty(path_, error) && !error;
  if (!absent && !empty) return;
  goes_ = absent || made;
  HoldSignals();
  watch_ = std::make_unique<SignalWatch>([this](int signal) {
    RemoveFolder(path_, goes_);
    EndBy(signal);
  });
}

FolderWatch::~FolderWatch() { LetGo(&watch_); }

FileWatch::FileWatch(const std::string& path) {
  if (path.empty()) return;
  const Result<std::string> writable = WritablePath(path);
  if (!writable.ok()) return;  // nothing will be written
  temporary_ = TemporaryPath(*writable);
  HoldSignals();
  watch_ = std::make_unique<SignalWatch>([this](int signal) {
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
    EndBy(signal);
  });
}

FileWatch::~FileWatch() { LetGo(&watch_); }

}  // namespace trivet::cli
