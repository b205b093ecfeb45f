// SPDX-License-Identifier: Apache-2.0
// A build without CUDA: there is no device to exchange through, so nothing here is ever called.
#include "base/check.h"
#include "comm/peer_cuda.h"

namespace trivet::comm::cuda {

int64_t Processors() { CHECK_MSG(false, "no CUDA"); }
template <class T>
void OneShot(const Peers&, int64_t, T*, int64_t) {
  CHECK_MSG(false, "no CUDA");
}
template <class T>
void TwoShot(const Peers&, int64_t, T*, const Shares&, int64_t) {
  CHECK_MSG(false, "no CUDA");
}
template void OneShot(const Peers&, int64_t, int64_t*, int64_t);
template void OneShot(const Peers&, int64_t, float*, int64_t);
template void OneShot(const Peers&, int64_t, uint32_t*, int64_t);
template void TwoShot(const Peers&, int64_t, int64_t*, const Shares&, int64_t);
template void TwoShot(const Peers&, int64_t, float*, const Shares&, int64_t);
template void TwoShot(const Peers&, int64_t, uint32_t*, const Shares&, int64_t);
void SumAddNorm(const Peers&, const kernels::AddNorm::Args&) { CHECK_MSG(false, "no CUDA"); }
void CompressedSum(const Peers&, int64_t, float*, int64_t) { CHECK_MSG(false, "no CUDA"); }
void Gather(const Peers&, int64_t, const Columns&) { CHECK_MSG(false, "no CUDA"); }
void PingPong(const Peers&, int64_t, uint32_t, uint32_t) { CHECK_MSG(false, "no CUDA"); }
void Push(const Peers&, int64_t) { CHECK_MSG(false, "no CUDA"); }
void Pull(const Peers&, int64_t) { CHECK_MSG(false, "no CUDA"); }
void PushAll(const Peers&) { CHECK_MSG(false, "no CUDA"); }

}  // namespace trivet::comm::cuda
