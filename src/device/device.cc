// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <algorithm>
#include <cstring>

#include "device/cuda.h"

namespace trivet::device {

Result<Device> Device::Open(Backend backend, int64_t rank) {
  Device device;
  if (backend == Backend::kCpu) return device;
  TRY_ASSIGN(const cuda::Opened opened, cuda::Open(rank));
  device.backend_ = backend;
  device.level_ = opened.level;
  opened.name.copy(device.name_, sizeof(device.name_) - 1);
  return device;
}

void Device::Upload(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  backend_ == Backend::kCpu ? static_cast<void>(std::memcpy(to, from, static_cast<size_t>(bytes)))
                            : cuda::Upload(to, from, bytes);
}

void Device::Download(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  backend_ == Backend::kCpu ? static_cast<void>(std::memcpy(to, from, static_cast<size_t>(bytes)))
                            : cuda::Download(to, from, bytes);
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

int64_t Device::FreeBytes() const { return backend_ == Backend::kCpu ? 0 : cuda::FreeBytes(); }

}  // namespace trivet::device
