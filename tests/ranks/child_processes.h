// SPDX-License-Identifier: Apache-2.0
// The children of the test process, as the system lists them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace trivet {

/// Process ids of all children, zombies included, in ascending order: the order in which ranks are started.
inline std::vector<int> ChildProcesses() {
  std::vector<int> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::stringstream text;
    text << file.rdbuf();
    // "pid (name) state parent ...", and the name may hold anything.
    const std::string stat = text.str();
    const size_t end = stat.rfind(')');
    if (end == std::string::npos || end + 4 >= stat.size()) continue;
    if (std::atoi(stat.c_str() + end + 4) == ::getpid()) children.push_back(std::atoi(name.c_str()));
  }
  std::sort(children.begin(), children.end());
  return children;
}

}  // namespace trivet
