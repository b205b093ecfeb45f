// SPDX-License-Identifier: Apache-2.0
#include "base/str.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/temporary.h"

namespace trivet {

Result<std::string> ReadTextFile(const std::string& path, int64_t max_bytes) {
  // O_NONBLOCK for the opening alone: a FIFO that nobody writes to must be an empty file, not a hang.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  if (fd < 0) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo;
    return MakeError(
        code, fmt::format("{}: expected a readable file, found: {}; check the path", path, std::strerror(errno)));
  }
  std::string text;
  char buffer[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(fd, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(got));
    if (static_cast<int64_t>(text.size()) > max_bytes) break;
  }
  const int error = errno;
  ::close(fd);
  if (got < 0) {
    return MakeError(Code::kIo,
                     fmt::format("{}: expected a readable file, found: {}; check it", path, std::strerror(error)));
  }
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return MakeError(Code::kCapacity,
                     fmt::format("{}: expected at most {} bytes, found more; not read", path, max_bytes));
  }
  return text;
}

Result<std::string> WritablePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found || error) return path;
  if (status.type() != std::filesystem::file_type::regular) {
    return MakeError(Code::kUsage,
                     fmt::format("{}: expected a regular file or nothing to write to, found something else; "
                                 "choose another path",
                                 path));
  }
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

Status WriteTextFile(const std::string& name, std::string_view text) {
  TRY_ASSIGN(const std::string path, WritablePath(name));
  const std::string temporary = TemporaryPath(path);
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (!written || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    return MakeError(Code::kIo, fmt::format("{}: expected to write {} bytes, found: {}; check the path and the space "
                                            "left",
                                            path, text.size(), std::strerror(error)));
  }
  return {};
}

Result<int64_t> ParseInt(std::string_view text, std::string_view what) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return MakeError(Code::kUsage,
                     fmt::format("{}: expected an integer, found \"{}\"; give a number", what, Quote(text)));
  }
  return value;
}

std::optional<int64_t> ParseSize(std::string_view text) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || count < 0) return std::nullopt;
  std::string unit;
  for (const char* at = stopped; at != end; ++at) {
    const bool gap = *at == ' ' && unit.empty() && at + 1 != end;  // in front of the unit
    if (!gap) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  }
  if (!unit.empty() && unit.back() == 'b') unit.pop_back();
  int64_t factor = 1;
  if (!unit.empty()) {
    constexpr std::string_view kPrefixes = "kmgtpe";
    const size_t power = kPrefixes.find(unit[0]);
    if (power == std::string_view::npos || (unit.size() > 1 && unit.substr(1) != "i")) return std::nullopt;
    for (size_t i = 0; i <= power; ++i) factor *= unit.size() > 1 ? 1024 : 1000;
  }
  if (count > INT64_MAX / factor) return std::nullopt;
  return count * factor;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  if (text.empty()) return pieces;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) break;
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  pieces.emplace_back(text.substr(begin));
  return pieces;
}

std::string Quote(std::string_view text, size_t most) {
  const bool whole = text.size() <= most;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  // Characters have four bytes at most: what goes on longer is no text.
  size_t kept = whole ? text.size() : most;
  for (int i = 0; i < 3 && !whole && kept > 0 && continues(kept); ++i) --kept;
  std::string out;
  for (const char c : text.substr(0, kept)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (!whole) out += "...";
  return RepairUtf8(out);
}

std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  // Compared with what is printed: 999.95 kB would read "1000.0 kB".
  while (bytes >= (unit == 0 ? 999.5 : 999.95) && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", bytes, kUnits[unit]) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

namespace {

// Length of the valid sequence at the start of `text`, or 0; `bad` is then the length of the maximal invalid subpart
// (Unicode 15, table 3-7 and section 3.9).
int SequenceLength(std::string_view text, int* bad) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const int lead = byte(0);
  *bad = 1;
  if (lead < 0x80) return 1;
  int length = 0, low = 0x80, high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf)
    length = 2;
  else if (lead >= 0xe0 && lead <= 0xef)
    length = 3;
  else if (lead >= 0xf0 && lead <= 0xf4)
    length = 4;
  else
    return 0;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (int i = 1; i < length; ++i) {
    const int next = byte(static_cast<size_t>(i));
    if (next < low || next > high) {
      *bad = i;
      return 0;
    }
    low = 0x80;
    high = 0xbf;
  }
  return length;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  int bad = 0;
  while (!text.empty()) {
    const int length = SequenceLength(text, &bad);
    if (length == 0) return false;
    text.remove_prefix(static_cast<size_t>(length));
  }
  return true;
}

std::string RepairUtf8(std::string_view text) {
  std::string out;
  int bad = 0;
  while (!text.empty()) {
    const int length = SequenceLength(text, &bad);
    out += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, static_cast<size_t>(length));
    text.remove_prefix(static_cast<size_t>(length == 0 ? bad : length));
  }
  return out;
}

}  // namespace trivet
