// SPDX-License-Identifier: Apache-2.0
// What SIGINT and SIGTERM do to commands that have something to end or to remove first.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace trivet::cli {

/// Takes SIGINT and SIGTERM from this thread, from all that start from now on, and from processes: ranks end with
/// their rank 0.
void HoldSignals();
/// Lets a signal that has come meanwhile end the process.
void ObeySignals();

/// Calls `act` for each end signal, on a thread of its own, while it lives. Signals must be held.
class SignalWatch {
 public:
  explicit SignalWatch(std::function<void(int signal)> act);
  ~SignalWatch();

 private:
  void Wait();

  const std::function<void(int signal)> act_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

/// While it lives, an end signal removes what is in a folder before it ends the process as it would have. To be made
/// before the process starts threads.
class FolderWatch {
 public:
  /// The folder `path`: one that does not exist yet goes, an empty one stays unless the caller has `made` it. One that
  /// has something in it is none of ours: nothing is watched.
  explicit FolderWatch(std::string path, bool made = false);
  ~FolderWatch();

 private:
  std::string path_;
  bool goes_ = false;
  std::unique_ptr<SignalWatch> watch_;
};

/// While it lives, an end signal removes what has been written of a file that is not whole yet, before it ends the
/// process as it would have. To be made before the process starts threads.
class FileWatch {
 public:
  /// What WriteTextFile or a FileWriter writes for `path`; nothing when that is empty.
  explicit FileWatch(const std::string& path);
  ~FileWatch();

 private:
  std::string temporary_;
  std::unique_ptr<SignalWatch> watch_;
};

}  // namespace trivet::cli
