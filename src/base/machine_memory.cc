// SPDX-License-Identifier: Apache-2.0
#include "base/machine_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "base/str.h"

namespace trivet {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 20;  // of the small files read here

// The integer after `key` at the beginning of a line.
std::optional<int64_t> NumberAfter(const std::string& text, std::string_view key) {
  for (const std::string& line : Split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_of("0123456789", key.size());
    if (begin == std::string::npos) return std::nullopt;
    const size_t end = std::min(line.find_first_not_of("0123456789", begin), line.size());
    const Result<int64_t> value = ParseInt(std::string_view(line).substr(begin, end - begin), key);
    if (value.ok()) return *value;
  }
  return std::nullopt;
}

// A file of one integer; nothing where there is none, or where it says "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  const Result<std::string> text = ReadTextFile(path, kMostBytes);
  return text.ok() ? NumberAfter(*text, "") : std::nullopt;
}

// What a group's limit leaves, in either version of control groups.
int64_t LeftIn(const std::string& group) {
  const struct {
    const char *limit, *used, *cache;
  } versions[] = {{"/memory.max", "/memory.current", "inactive_file "},
                  {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "}};
  int64_t left = std::numeric_limits<int64_t>::max();
  for (const auto& version : versions) {
    const std::optional<int64_t> limit = NumberIn(group + version.limit), used = NumberIn(group + version.used);
    if (!limit || !used) continue;
    const Result<std::string> stat = ReadTextFile(group + "/memory.stat", kMostBytes);
    const int64_t cache = stat.ok() ? NumberAfter(*stat, version.cache).value_or(0) : 0;
    left = std::min(left, std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache)));
  }
  return left;
}

// The folders of the process's groups, from "0::/path" or "7:memory:/path", and of all groups above.
std::vector<std::string> Groups(const std::string& root) {
  const Result<std::string> text = ReadTextFile(root + "/proc/self/cgroup", kMostBytes);
  std::vector<std::string> groups;
  for (const std::string& line : text.ok() ? Split(*text, '\n') : std::vector<std::string>()) {
    const std::vector<std::string> parts = Split(line, ':');
    if (parts.size() != 3 || !(parts[1].empty() || parts[1] == "memory")) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (parts[1].empty() ? "" : "/memory");
    std::string path = parts[2] == "/" ? "" : parts[2];
    for (;; path.resize(path.rfind('/'))) {
      groups.push_back(mount + path);
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return groups;
}

}  // namespace

Result<int64_t> AvailableMemory(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  TRY_ASSIGN(const std::string text, ReadTextFile(path, kMostBytes));
  const std::optional<int64_t> kilobytes = NumberAfter(text, "MemAvailable:");
  if (!kilobytes) {
    return MakeError(Code::kIo, fmt::format("{}: expected a line MemAvailable, found none; run on Linux", path));
  }
  int64_t available = *kilobytes * 1024;
  for (const std::string& group : Groups(root)) available = std::min(available, LeftIn(group));
  return available;
}

}  // namespace trivet
