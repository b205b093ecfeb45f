// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/machine_memory.h"
#include "base/str.h"
#include "device/cuda.h"

namespace trivet::device {
namespace {

// Up to here a copy to the host passes through memory of the device's own.
constexpr int64_t kPinnedBytes = int64_t{1} << 18;

}  // namespace

Result<Device> Device::Open(Backend backend, int64_t rank) {
  Device device;
  if (backend == Backend::kCpu) return device;
  TRY_ASSIGN(const cuda::Opened opened, cuda::Open(rank));
  device.backend_ = backend;
  device.level_ = opened.level;
  // Before any kernel waits for another rank, which making it might have to wait for.
  TRY_ASSIGN(device.pinned_, device.MakePageLocked(kPinnedBytes));
  opened.name.copy(device.name_, sizeof(device.name_) - 1);
  return device;
}

void Device::Upload(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  backend_ == Backend::kCpu ? static_cast<void>(std::memcpy(to, from, static_cast<size_t>(bytes)))
                            : cuda::Upload(to, from, bytes);
}

void FreePageLocked::operator()(std::byte* memory) const {
  backend == Backend::kCpu ? static_cast<void>(delete[] memory) : cuda::FreePinned(memory);
}

Result<PageLocked> Device::MakePageLocked(int64_t bytes) const {
  if (backend_ == Backend::kCpu) return PageLocked(new std::byte[static_cast<size_t>(bytes)]);
  std::string why;
  void* memory = cuda::MakePinned(bytes, &why);
  if (memory == nullptr) {
    return MakeError(Code::kCapacity,
                     fmt::format("page-locked memory: expected {} of it, found: {}; end other programs "
                                 "that lock memory, or raise the limit",
                                 HumanBytes(static_cast<double>(bytes)), why));
  }
  return PageLocked(static_cast<std::byte*>(memory), {backend_});
}

void Device::UploadPageLocked(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  backend_ == Backend::kCpu ? static_cast<void>(std::memcpy(to, from, static_cast<size_t>(bytes)))
                            : cuda::UploadPinned(to, from, bytes);
}

void Device::Download(void* to, const void* from, int64_t bytes) const {
  const Piece piece{to, from, bytes};
  Download({&piece, 1});
}

void Device::Download(std::span<const Piece> pieces) const {
  // Places in the pinned memory, whole words of 16 bytes.
  const auto place_of = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
  int64_t all = 0;
  for (const Piece& piece : pieces) all += place_of(piece.bytes);
  const bool pinned = backend_ == Backend::kCuda && all <= kPinnedBytes;
  std::byte* place = pinned_.get();
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    if (backend_ == Backend::kCpu) {
      std::memcpy(piece.to, piece.from, static_cast<size_t>(piece.bytes));
    } else if (pinned) {
      cuda::DownloadPinned(place, piece.from, piece.bytes);
      place += place_of(piece.bytes);
    } else {
      cuda::Download(piece.to, piece.from, piece.bytes);
    }
  }
  if (!pinned || all == 0) return;
  cuda::Wait();
  place = pinned_.get();
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0) std::memcpy(piece.to, place, static_cast<size_t>(piece.bytes));
    place += place_of(piece.bytes);
  }
}

void Device::Copy(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  backend_ == Backend::kCpu ? static_cast<void>(std::memcpy(to, from, static_cast<size_t>(bytes)))
                            : cuda::Copy(to, from, bytes);
}

void Device::Zero(void* at, int64_t bytes) const {
  if (bytes == 0) return;
  backend_ == Backend::kCpu ? static_cast<void>(std::memset(at, 0, static_cast<size_t>(bytes))) : cuda::Zero(at, bytes);
}

void Device::Wait() const {
  if (backend_ == Backend::kCuda) cuda::Wait();
}

std::string Device::DescribeMachine() const {
  if (backend_ == Backend::kCuda) return cuda::DescribeMachine();
  std::string name = "unnamed processor";
  std::ifstream facts("/proc/cpuinfo");
  constexpr std::string_view kName = "model name\t: ";
  for (std::string line; std::getline(facts, line);) {
    if (!line.starts_with(kName)) continue;
    name = RepairUtf8(line.substr(kName.size()));
    break;
  }
  return fmt::format("{}, {} cores", name, std::thread::hardware_concurrency());
}

int64_t Device::FreeBytes() const { return cuda::FreeBytes(); }

Result<int64_t> Device::FreeBytesOfAll(Backend backend, int64_t ranks) {
  if (backend == Backend::kCpu) return AvailableMemory();
  // What the child writes: a sum, or a negative number and a sentence.
  struct Answer {
    int64_t bytes = -1;
    bool refused = false;  // because this process has opened a GPU: then it may as well ask itself
    char message[503] = {};
  };
  int ends[2];
  if (::pipe(ends) != 0) return MakeError(Code::kIo, fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t child = ::fork();
  if (child == 0) {
    Answer answer;
    const Result<int64_t> sum = cuda::FreeBytesOfAll(ranks);
    if (sum.ok()) answer.bytes = *sum;
    if (!sum.ok()) {
      answer.refused = sum.error().code == Code::kUnsupported;
      sum.error().message.copy(answer.message, sizeof(answer.message) - 1);
    }
    const ssize_t written = ::write(ends[1], &answer, sizeof(answer));
    ::_exit(written == sizeof(answer) ? 0 : 1);
  }
  ::close(ends[1]);
  Answer answer;
  const ssize_t got = child < 0 ? -1 : ::read(ends[0], &answer, sizeof(answer));
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  if (got != sizeof(answer)) {
    return MakeError(Code::kIo,
                     "GPU: expected a process to say how much memory is free, found that it ended; run "
                     "trivet doctor --backend cuda");
  }
  if (answer.refused) return cuda::FreeBytesOfAll(ranks);
  if (answer.bytes < 0) return MakeError(Code::kUsage, answer.message);
  return answer.bytes;
}

}  // namespace trivet::device
