// SPDX-License-Identifier: Apache-2.0
// Every row of every family for a GPU gives the reference's bytes. Without a device the program says so and counts as
// skipped; nothing that has one may leave a row uncompared.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cuda/mapped_heap.h"
#include "tests/kernels/families.h"

namespace trivet::kernels {
namespace {

constexpr int kSkipped = 77;                    // ctest's SKIP_RETURN_CODE
constexpr size_t kHeapBytes = size_t{3} << 30;  // the largest case and what tests leave in free lists

// Waits for the row that just started, which must have gone well.
void FinishDevice() {
  const cudaError_t error = cudaStreamSynchronize(cudaStreamPerThread);
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "device: %s\n", cudaGetErrorString(error));
  std::abort();  // the context is lost, and with it every later comparison
}

Target DeviceTarget() {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return {Backend::kCuda, major * 10 + minor};
}

class CudaParity : public testing::TestWithParam<Family> {};

TEST_P(CudaParity, EveryRowGivesTheReferenceBytes) {
  RowLog log(DeviceTarget(), FinishDevice, true);
  GetParam().compare(&log);
  EXPECT_FALSE(log.compared().empty()) << "no row for this device";
  EXPECT_EQ(log.compared(), RunnableOf(GetParam().name, DeviceTarget())) << "a row was not compared";
  std::printf("%s: %d rows, %d comparisons\n", GetParam().name, static_cast<int>(log.compared().size()),
              static_cast<int>(log.cases()));
}

INSTANTIATE_TEST_SUITE_P(Families, CudaParity, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trivet::kernels

int main(int argc, char** argv) {
  // The cases' files bring the processor's tests along.
  GTEST_FLAG_SET(filter, "*CudaParity*:CudaMatrix*");
  testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: skipped\n");
    return trivet::kernels::kSkipped;
  }
  if (!trivet::MapHeap(trivet::kernels::kHeapBytes)) {
    std::fprintf(stderr, "expected %zu bytes of page-locked memory, found less\n", trivet::kernels::kHeapBytes);
    return 1;
  }
  return RUN_ALL_TESTS();
}
