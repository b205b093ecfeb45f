// SPDX-License-Identifier: Apache-2.0
// What device/ needs of CUDA, in terms that a build without CUDA has too: cuda.cu and no_cuda.cc define it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "device/peer_handle.h"

namespace trivet::device::cuda {

/// What was opened.
struct Opened {
  int64_t level = 0;  // compute capability, 90 for 9.0
  std::string name;
};

/// Makes device `rank` modulo the number of devices that of the calling thread.
/// Errors:  kUsage without a driver, a device, or CUDA in this build.
Result<Opened> Open(int64_t rank);

/// Zeroed memory, or null with the reason in `why`.
void* Allocate(int64_t bytes, std::string* why);
void Free(void* memory);

/// As the methods of Device.
void Upload(void* to, const void* from, int64_t bytes);
void Download(void* to, const void* from, int64_t bytes);
/// Asks for a copy into memory that MakePinned gave; it is there after Wait.
void DownloadPinned(void* pinned, const void* from, int64_t bytes);
/// Asks for a copy from such memory, when everything else has happened.
void UploadPinned(void* to, const void* pinned, int64_t bytes);
/// Null with the reason in `why` where there is none.
void* MakePinned(int64_t bytes, std::string* why);
void FreePinned(void* memory);
void Copy(void* to, const void* from, int64_t bytes);
void Zero(void* at, int64_t bytes);
void Wait();
int64_t FreeBytes();

/// What graph.h does: begins to record the thread's stream, ends with a handle, repeats and forgets it.
void BeginRecording();
void* EndRecording();
void LaunchRecording(void* handle);
void FreeRecording(void* handle);

/// Events of the thread's stream; where it is being recorded, `in_graph` makes one part of the graph.
void* MakeEvent();
void FreeEvent(void* event);
void RecordEvent(void* event, bool in_graph);
/// From one event to another, which is waited for.
double MicrosecondsBetween(void* from, void* to);

/// What device/peer_memory.h needs. Where the answer is null, `why` has the reason.
///   Export    fills in how others reach memory that Allocate gave
///   Import    the address at which the thread's device reaches another rank's memory
///   MapHost   lets the thread's device read and write whole pages of the host; returns their address there
bool Export(void* memory, PeerHandle* handle, std::string* why);
void* Import(const PeerHandle& handle, std::string* why);
void CloseImport(const PeerHandle& handle, void* memory);
void* MapHost(void* memory, int64_t bytes, std::string* why);
void UnmapHost(void* memory);

/// As Device::DescribeMachine.
std::string DescribeMachine();

/// The sum of FreeBytes over the devices of `ranks` ranks.  Errors: as Open.
Result<int64_t> FreeBytesOfAll(int64_t ranks);

}  // namespace trivet::device::cuda
