// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <csignal>
#include <filesystem>

namespace trivet::cli {
namespace {

sigset_t EndSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  return signals;
}

void RemoveInside(const std::string& path) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
    std::filesystem::remove_all(entry.path(), ignored);
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

FolderWatch::FolderWatch(std::string path, bool made) : path_(std::move(path)) {
  std::error_code error;
  const bool absent = !std::filesystem::exists(std::filesystem::symlink_status(path_, error));
  const bool empty = std::filesystem::is_directory(path_, error) && std::filesystem::is_empty(path_, error) && !error;
  if (!absent && !empty) return;
  goes_ = absent || made;
  HoldSignals();
  watch_ = std::make_unique<SignalWatch>([this](int signal) {
    RemoveInside(path_);
    std::error_code ignored;
    if (goes_) std::filesystem::remove(path_, ignored);
    EndBy(signal);
  });
}

FolderWatch::~FolderWatch() {
  if (watch_ == nullptr) return;
  watch_.reset();
  const sigset_t signals = EndSignals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace trivet::cli
