// SPDX-License-Identifier: Apache-2.0
// A build without CUDA: there is no device to open, so nothing else is ever called.
#include "base/check.h"
#include "device/cuda.h"

namespace trivet::device::cuda {

Result<Opened> Open(int64_t) {
  return MakeError(Code::kUsage,
                   "--backend cuda: expected a build with CUDA, found one without; build where nvcc is "
                   "installed, or choose --backend cpu");
}

void* Allocate(int64_t, std::string*) { CHECK_MSG(false, "no CUDA"); }
void Free(void*) { CHECK_MSG(false, "no CUDA"); }
void Upload(void*, const void*, int64_t) { CHECK_MSG(false, "no CUDA"); }
void Download(void*, const void*, int64_t) { CHECK_MSG(false, "no CUDA"); }
void DownloadPinned(void*, const void*, int64_t) { CHECK_MSG(false, "no CUDA"); }
void UploadPinned(void*, const void*, int64_t) { CHECK_MSG(false, "no CUDA"); }
void* MakePinned(int64_t, std::string*) { CHECK_MSG(false, "no CUDA"); }
void FreePinned(void*) { CHECK_MSG(false, "no CUDA"); }
void Copy(void*, const void*, int64_t) { CHECK_MSG(false, "no CUDA"); }
void Zero(void*, int64_t) { CHECK_MSG(false, "no CUDA"); }
void Wait() { CHECK_MSG(false, "no CUDA"); }
void BeginRecording() { CHECK_MSG(false, "no CUDA"); }
void* EndRecording() { CHECK_MSG(false, "no CUDA"); }
void LaunchRecording(void*) { CHECK_MSG(false, "no CUDA"); }
void FreeRecording(void*) { CHECK_MSG(false, "no CUDA"); }
void* MakeEvent() { CHECK_MSG(false, "no CUDA"); }
void FreeEvent(void*) { CHECK_MSG(false, "no CUDA"); }
void RecordEvent(void*, bool) { CHECK_MSG(false, "no CUDA"); }
double MicrosecondsBetween(void*, void*) { CHECK_MSG(false, "no CUDA"); }
bool Export(void*, PeerHandle*, std::string*) { CHECK_MSG(false, "no CUDA"); }
void* Import(const PeerHandle&, std::string*) { CHECK_MSG(false, "no CUDA"); }
void CloseImport(const PeerHandle&, void*) { CHECK_MSG(false, "no CUDA"); }
void* MapHost(void*, int64_t, std::string*) { CHECK_MSG(false, "no CUDA"); }
void UnmapHost(void*) { CHECK_MSG(false, "no CUDA"); }
int64_t FreeBytes() { CHECK_MSG(false, "no CUDA"); }
std::string DescribeMachine() { CHECK_MSG(false, "no CUDA"); }
Result<int64_t> FreeBytesOfAll(int64_t) { return Open(0).error(); }

}  // namespace trivet::device::cuda
