// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstring>

#include "base/check.h"
#include "base/env.h"
#include "device/cuda.h"

namespace trivet::device::cuda {
namespace {

// A failure here is ours: a bad address, or a kernel that went wrong earlier in the stream.
void Expect(cudaError_t error, const char* what) {
  CHECK_MSG(error == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(error));
}

// Takes note of an error that a caller reports.
bool Explain(cudaError_t error, std::string* why) {
  if (error == cudaSuccess) return true;
  cudaGetLastError();  // or the next launch would report it
  *why = cudaGetErrorString(error);
  return false;
}

size_t Size(int64_t bytes) { return static_cast<size_t>(bytes); }

// nvcc cannot check fmt's format strings, so sentences are put together by hand here.
Error NoDevice(const char* found) {
  const std::string version = std::to_string(CUDART_VERSION / 1000) + '.' + std::to_string(CUDART_VERSION % 1000 / 10);
  return MakeError(Code::kUsage, "--backend cuda: expected an NVIDIA GPU and a driver for CUDA " + version +
                                     ", found: " + found + "; run where there is one, or choose --backend cpu");
}

// Why the first calls fail. Which of them refuses a process that was made by one that uses GPUs depends on the driver.
Error NotOpened(cudaError_t error) {
  if (error != cudaErrorInitializationError) return NoDevice(cudaGetErrorString(error));
  return MakeError(Code::kUnsupported,
                   "--backend cuda: expected a process that may use GPUs, found one that a program made after it had "
                   "used them itself; use --launch threads, or a program for every run");
}

}  // namespace

Result<Opened> Open(int64_t rank) {
  // A kernel that waits for another rank's must not keep it from starting. Loading code at the first launch waits for
  // the whole GPU, and streams share as many queues as there are.
  SetDefaultEnv("CUDA_MODULE_LOADING", "EAGER");
  SetDefaultEnv("CUDA_DEVICE_MAX_CONNECTIONS", "32");
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return NotOpened(error);
  if (count == 0) return NoDevice("none");
  const int ordinal = static_cast<int>(rank % count);
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaSetDevice(ordinal); error != cudaSuccess) {
    return NotOpened(error);
  }
  Expect(cudaGetDeviceProperties(&properties, ordinal), "device properties");
  return Opened{properties.major * 10 + properties.minor, properties.name};
}

void* Allocate(int64_t bytes, std::string* why) {
  void* memory = nullptr;
  if (!Explain(cudaMalloc(&memory, Size(bytes)), why)) return nullptr;
  Zero(memory, bytes);
  return memory;
}

void Free(void* memory) { Expect(cudaFree(memory), "freeing device memory"); }

// A longer copy from or to ordinary memory passes through buffers that all threads of the process share, and keeps them
// while it waits for its turn in the stream. What stands before it may be a kernel that waits for another rank, which
// needs them for a copy of its own: so that must have ended. Shorter copies to the device travel with the command.
void Upload(void* to, const void* from, int64_t bytes) {
  constexpr int64_t kWithCommand = 65536;
  if (bytes > kWithCommand) Wait();
  Expect(cudaMemcpyAsync(to, from, Size(bytes), cudaMemcpyHostToDevice, cudaStreamPerThread), "copy to the device");
}

void Download(void* to, const void* from, int64_t bytes) {
  Wait();
  Expect(cudaMemcpyAsync(to, from, Size(bytes), cudaMemcpyDeviceToHost, cudaStreamPerThread), "copy to the host");
  Wait();
}

void DownloadPinned(void* pinned, const void* from, int64_t bytes) {
  Expect(cudaMemcpyAsync(pinned, from, Size(bytes), cudaMemcpyDeviceToHost, cudaStreamPerThread), "copy to the host");
}

void UploadPinned(void* to, const void* pinned, int64_t bytes) {
  Wait();
  Expect(cudaMemcpyAsync(to, pinned, Size(bytes), cudaMemcpyHostToDevice, cudaStreamPerThread), "copy to the device");
}

void* MakePinned(int64_t bytes, std::string* why) {
  void* memory = nullptr;
  return Explain(cudaHostAlloc(&memory, Size(bytes), cudaHostAllocPortable), why) ? memory : nullptr;
}

void FreePinned(void* memory) { Expect(cudaFreeHost(memory), "freeing page-locked memory"); }

void Copy(void* to, const void* from, int64_t bytes) {
  Expect(cudaMemcpyAsync(to, from, Size(bytes), cudaMemcpyDeviceToDevice, cudaStreamPerThread), "copy on the device");
}

void Zero(void* at, int64_t bytes) {
  Expect(cudaMemsetAsync(at, 0, Size(bytes), cudaStreamPerThread), "zeroing device memory");
}

void Wait() { Expect(cudaStreamSynchronize(cudaStreamPerThread), "waiting for the device"); }

int64_t FreeBytes() {
  size_t free = 0, total = 0;
  Expect(cudaMemGetInfo(&free, &total), "device memory");
  return static_cast<int64_t>(free);
}

void BeginRecording() {
  Expect(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal), "recording a graph");
}

void* EndRecording() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  Expect(cudaStreamEndCapture(cudaStreamPerThread, &graph), "recording a graph");
  Expect(cudaGraphInstantiate(&executable, graph, 0), "making a graph");
  Expect(cudaGraphDestroy(graph), "freeing a graph");
  return executable;
}

void LaunchRecording(void* handle) {
  Expect(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle), cudaStreamPerThread), "launching a graph");
}

void FreeRecording(void* handle) {
  Expect(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle)), "freeing a graph");
}

void* MakeEvent() {
  cudaEvent_t event = nullptr;
  Expect(cudaEventCreate(&event), "making an event");
  return event;
}

void FreeEvent(void* event) { Expect(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "freeing an event"); }

void RecordEvent(void* event, bool in_graph) {
  const unsigned flags = in_graph ? cudaEventRecordExternal : cudaEventRecordDefault;
  Expect(cudaEventRecordWithFlags(static_cast<cudaEvent_t>(event), cudaStreamPerThread, flags), "recording an event");
}

double MicrosecondsBetween(void* from, void* to) {
  float ms = 0;
  Expect(cudaEventSynchronize(static_cast<cudaEvent_t>(to)), "waiting for an event");
  Expect(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)), "time of an event");
  return static_cast<double>(ms) * 1000;
}

bool Export(void* memory, PeerHandle* handle, std::string* why) {
  int ordinal = 0;
  Expect(cudaGetDevice(&ordinal), "the thread's device");
  handle->process = ::getpid();
  handle->ordinal = ordinal;
  handle->address = memory;
  static_assert(sizeof(handle->ipc) == sizeof(cudaIpcMemHandle_t));
  cudaIpcMemHandle_t ipc{};
  if (!Explain(cudaIpcGetMemHandle(&ipc, memory), why)) return false;
  std::memcpy(handle->ipc, &ipc, sizeof(ipc));
  return true;
}

void* Import(const PeerHandle& handle, std::string* why) {
  int own = 0, reachable = 1;
  Expect(cudaGetDevice(&own), "the thread's device");
  const int ordinal = static_cast<int>(handle.ordinal);
  if (ordinal != own) Expect(cudaDeviceCanAccessPeer(&reachable, own, ordinal), "peer access");
  if (reachable == 0) {
    *why = "no peer access between them";
    return nullptr;
  }
  if (handle.process != ::getpid()) {
    cudaIpcMemHandle_t ipc{};
    std::memcpy(&ipc, handle.ipc, sizeof(ipc));
    void* memory = nullptr;
    return Explain(cudaIpcOpenMemHandle(&memory, ipc, cudaIpcMemLazyEnablePeerAccess), why) ? memory : nullptr;
  }
  const cudaError_t error = ordinal == own ? cudaSuccess : cudaDeviceEnablePeerAccess(ordinal, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // another rank of this GPU asked first
  } else if (!Explain(error, why)) {
    return nullptr;
  }
  return handle.address;
}

void CloseImport(const PeerHandle& handle, void* memory) {
  if (handle.process != ::getpid()) Expect(cudaIpcCloseMemHandle(memory), "closing another rank's memory");
}

void* MapHost(void* memory, int64_t bytes, std::string* why) {
  if (!Explain(cudaHostRegister(memory, Size(bytes), cudaHostRegisterMapped), why)) return nullptr;
  void* there = nullptr;
  Expect(cudaHostGetDevicePointer(&there, memory, 0), "host memory on the device");
  return there;
}

void UnmapHost(void* memory) { Expect(cudaHostUnregister(memory), "host memory on the device"); }

// Of every two GPUs what the driver says about the path between them: the lower the rank, the faster; "-" for none.
std::string DescribeMachine() {
  int count = 0;
  Expect(cudaGetDeviceCount(&count), "number of GPUs");
  std::string gpus, links;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    Expect(cudaGetDeviceProperties(&properties, i), "device properties");
    gpus += (i == 0 ? "" : ", ") + std::string(properties.name);
    for (int j = 0; j < i; ++j) {
      int reachable = 0, rank = 0;
      Expect(cudaDeviceGetP2PAttribute(&reachable, cudaDevP2PAttrAccessSupported, j, i), "link between GPUs");
      Expect(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, j, i), "link between GPUs");
      links += ' ' + (reachable != 0 ? std::to_string(rank) : std::string("-"));
    }
  }
  return links.empty() ? gpus : gpus + ", links" + links;
}

Result<int64_t> FreeBytesOfAll(int64_t ranks) {
  int count = 1, device = 0;
  int64_t sum = 0;
  const bool returns = cudaGetDevice(&device) == cudaSuccess;
  for (int64_t rank = 0; rank < ranks && rank < count; ++rank) {
    const Result<Opened> opened = Open(rank);
    if (!opened.ok()) return opened.error();
    Expect(cudaGetDeviceCount(&count), "number of devices");
    sum += FreeBytes();
  }
  if (returns) Expect(cudaSetDevice(device), "the device before");
  return sum;
}

}  // namespace trivet::device::cuda
