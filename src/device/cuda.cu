// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "base/check.h"
#include "device/cuda.h"

namespace trivet::device::cuda {
namespace {

// A failure here is ours: a bad address, or a kernel that went wrong earlier in the stream.
void Expect(cudaError_t error, const char* what) {
  CHECK_MSG(error == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(error));
}

size_t Size(int64_t bytes) { return static_cast<size_t>(bytes); }

// nvcc cannot check fmt's format strings, so sentences are put together by hand here.
Error NoDevice(const char* found) {
  const std::string version = std::to_string(CUDART_VERSION / 1000) + '.' + std::to_string(CUDART_VERSION % 1000 / 10);
  return MakeError(Code::kUsage, "--backend cuda: expected an NVIDIA GPU and a driver for CUDA " + version +
                                     ", found: " + found + "; run where there is one, or choose --backend cpu");
}

}  // namespace

Result<Opened> Open(int64_t rank) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return NoDevice(cudaGetErrorString(error));
  }
  if (count == 0) return NoDevice("none");
  const int ordinal = static_cast<int>(rank % count);
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaSetDevice(ordinal); error != cudaSuccess) {
    return NoDevice(cudaGetErrorString(error));
  }
  Expect(cudaGetDeviceProperties(&properties, ordinal), "device properties");
  return Opened{properties.major * 10 + properties.minor, properties.name};
}

void* Allocate(int64_t bytes, std::string* why) {
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, Size(bytes)); error != cudaSuccess) {
    cudaGetLastError();  // it was reported here
    *why = cudaGetErrorString(error);
    return nullptr;
  }
  Zero(memory, bytes);
  return memory;
}

void Free(void* memory) { Expect(cudaFree(memory), "freeing device memory"); }

void Upload(void* to, const void* from, int64_t bytes) {
  Expect(cudaMemcpyAsync(to, from, Size(bytes), cudaMemcpyHostToDevice, cudaStreamPerThread), "copy to the device");
}

void Download(void* to, const void* from, int64_t bytes) {
  Expect(cudaMemcpyAsync(to, from, Size(bytes), cudaMemcpyDeviceToHost, cudaStreamPerThread), "copy to the host");
  Wait();
}

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

Result<int64_t> FreeBytesOfAll(int64_t ranks) {
  int count = 1;
  int64_t sum = 0;
  for (int64_t rank = 0; rank < ranks && rank < count; ++rank) {
    const Result<Opened> opened = Open(rank);
    if (!opened.ok()) return opened.error();
    Expect(cudaGetDeviceCount(&count), "number of devices");
    sum += FreeBytes();
  }
  return sum;
}

}  // namespace trivet::device::cuda
