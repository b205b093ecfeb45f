// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of kernels share: memory of a GPU, and the time of calls.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace trivet::kernels {

/// Ends the program where a call failed.
inline void Require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Zeros in the device's memory.
template <class T>
T* Allocate(int64_t count) {
  void* memory = nullptr;
  Require(cudaMalloc(&memory, static_cast<size_t>(count) * sizeof(T)), "cudaMalloc");
  Require(cudaMemset(memory, 0, static_cast<size_t>(count) * sizeof(T)), "cudaMemset");
  return static_cast<T*>(memory);
}

/// Fills with values between -1 and 1.
__global__ void FillFloats(float* values, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    values[i] = static_cast<float>((i * 7919) % 2003) / 1001.0F - 1.0F;
  }
}

//// Median time of one call, in microseconds: `calls` calls in one graph, so that launches cost nothing.
template <class Call>
double MedianTime(int calls, const Call& call) {
  cudaStream_t stream = cudaStreamPerThread;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  call(0);
  Require(cudaStreamSynchronize(stream), "first call");
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < calls; ++i) call(i);
  Require(cudaStreamEndCapture(stream, &graph), "capture");
  Require(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t begin, end;
  Require(cudaEventCreate(&begin), "event");
  Require(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int round = 0; round < 7; ++round) {
    cudaEventRecord(begin, stream);
    Require(cudaGraphLaunch(exec, stream), "launch");
    cudaEventRecord(end, stream);
    Require(cudaEventSynchronize(end), "run");
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
    if (round > 0) times.push_back(static_cast<double>(milliseconds) * 1000 / calls);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace trivet::kernels
