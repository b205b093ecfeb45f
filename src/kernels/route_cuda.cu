// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_launch.cuh"
#include "kernels/elementary.h"
#include "kernels/token_ops.h"

namespace trivet::kernels {
namespace {

// A value and where it stands.
struct Pick {
  float value;
  int index;
};

// Whether `a` is chosen before `b`: the larger value, or the lower index of equals.
__device__ bool Before(const Pick& a, const Pick& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

// The value of `values` [total] that is chosen next after `last`, by one warp. NaN counts as the lowest value.
__device__ Pick Next(const float* values, int total, const Pick& last) {
  Pick best{-INFINITY, total};
  for (int i = static_cast<int>(threadIdx.x); i < total; i += kWarp) {
    const Pick candidate{values[i] == values[i] ? values[i] : -INFINITY, i};
    if (Before(last, candidate) && Before(candidate, best)) best = candidate;
  }
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const Pick other{__shfl_xor_sync(kAllLanes, best.value, half), __shfl_xor_sync(kAllLanes, best.index, half)};
    if (Before(other, best)) best = other;
  }
  return best;
}

constexpr float kAboveAll = INFINITY;

// A float as an unsigned number of the same order, above zero; NaN counts as the lowest value.
__device__ uint32_t OrderOf(float value) {
  const uint32_t bits = __float_as_uint(value == value ? value + 0.0F : -INFINITY);  // no negative zero
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}

// Chooses values one after the other, the larger first and of equals that of the lower index, by one warp: every lane
// knows the best of its own that are left.
struct Chooser {
  uint32_t* orders;  // [total] in shared memory, zero where chosen
  int total;
  uint32_t best = 0;
  int at = 0;

  __device__ Chooser(const float* values, int count, uint32_t* memory) : orders(memory), total(count) {
    for (int i = static_cast<int>(threadIdx.x); i < total; i += kWarp) orders[i] = OrderOf(values[i]);
    Look();
  }
  __device__ void Look() {
    best = 0, at = total;
    for (int i = static_cast<int>(threadIdx.x); i < total; i += kWarp) {
      if (orders[i] > best) best = orders[i], at = i;
    }
  }
  // The index of the next, or `total` when none is left.
  __device__ int Next() {
    const uint32_t order = __reduce_max_sync(kAllLanes, best);
    const auto own = static_cast<unsigned>(best == order ? at : total);
    const int index = static_cast<int>(__reduce_min_sync(kAllLanes, own));
    if (index < total && index % kWarp == static_cast<int>(threadIdx.x)) {
      orders[index] = 0;
      Look();
    }
    return index;
  }
};

// Makes experts ineligible whose group is not among the best by the sum of its two largest values.
__device__ void DropGroups(const Route::Args& args, float* choice, float* sums) {
  const int groups = static_cast<int>(args.groups), size = static_cast<int>(args.experts_total) / groups;
  for (int g = static_cast<int>(threadIdx.x); g < groups; g += kWarp) {
    float two[2] = {-INFINITY, size > 1 ? -INFINITY : 0.0F};
    for (int i = g * size; i < (g + 1) * size; ++i) {
      if (choice[i] > two[0]) {
        if (size > 1) two[1] = two[0];
        two[0] = choice[i];
      } else if (choice[i] > two[1] && size > 1) {
        two[1] = choice[i];
      }
    }
    sums[g] = two[0] + two[1];
  }
  __syncwarp();
  Pick last{kAboveAll, -1};
  for (int64_t i = 0; i < args.groups_kept; ++i) last = Next(sums, groups, last);
  for (int e = static_cast<int>(threadIdx.x); e < groups * size; e += kWarp) {
    const Pick group{sums[e / size] == sums[e / size] ? sums[e / size] : -INFINITY, e / size};
    if (Before(last, group)) choice[e] = -INFINITY;
  }
  __syncwarp();
}

// One token a warp. Shared memory: scores [E], choice [E], their orders [E], sums of groups, the chosen ones' scores
// [top_k] and indices [top_k].
__global__ void RouteKernel(const Route::Args args) {
  BeginKernel();
  extern __shared__ float shared[];
  const int total = static_cast<int>(args.experts_total), top_k = static_cast<int>(args.top_k);
  float *scores = shared, *choice = scores + total, *sums = choice + 2 * total, *chosen = sums + args.groups;
  int* indices = reinterpret_cast<int*>(chosen + top_k);
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t t = args.begin + blockIdx.x;
  const float* logits = args.logits + t * args.logits_stride;
  const bool sigmoid = args.kind == RouterKind::kSigmoid;
  for (int e = lane; e < total; e += kWarp) {
    scores[e] = sigmoid ? Sigmoid<ScalarOps>(logits[e]) : logits[e];
    choice[e] = sigmoid && args.correction != nullptr ? scores[e] + args.correction[e] : scores[e];
  }
  __syncwarp();
  if (sigmoid && args.groups > 1) DropGroups(args, choice, sums);
  Chooser chooser(choice, total, reinterpret_cast<uint32_t*>(choice + total));
  for (int i = 0; i < top_k; ++i) {
    const int index = chooser.Next();
    if (lane == 0) indices[i] = index;
  }
  __syncwarp();
  for (int i = lane; i < top_k; i += kWarp) {
    const int index = indices[i];
    chosen[i] = scores[index];
    args.experts[t * top_k + i] = args.slot_of == nullptr ? index : args.slot_of[index];
  }
  if (args.record.experts != nullptr) {
    const auto choice_of = [&](int index) {
      return index < total && choice[index] == choice[index] ? choice[index] : -INFINITY;
    };
    for (int i = lane; i < top_k; i += kWarp) {
      args.record.experts[t * top_k + i] = indices[i];
      args.record.scores[t * top_k + i] = scores[indices[i]];
      args.record.choice[t * (top_k + 1) + i] = choice_of(indices[i]);
    }
    const int left = chooser.Next();
    if (lane == 0) args.record.choice[t * (top_k + 1) + top_k] = choice_of(left);
  }
  __syncwarp();
  const float largest = chosen[0];
  __syncwarp();
  if (!sigmoid) {
    for (int i = lane; i < top_k; i += kWarp) chosen[i] = Exp<ScalarOps>(chosen[i] - largest);
  }
  if (args.kind == RouterKind::kSoftmaxAll) {
    for (int e = lane; e < total; e += kWarp) scores[e] = Exp<ScalarOps>(logits[e] - largest);
  }
  __syncwarp();
  const bool all = args.kind == RouterKind::kSoftmaxAll;
  const float* summands = all ? scores : chosen;
  float sum = 0;
  for (int i = 0; i < (all ? total : top_k); ++i) sum += summands[i];
  for (int i = lane; i < top_k; i += kWarp) {
    const float share = !sigmoid ? chosen[i] / sum : args.renormalise ? chosen[i] / (sum + 1e-20F) : chosen[i];
    args.weights[t * top_k + i] = share * args.scaling;
  }
}

void RouteCuda(const Route::Args& args) {
  if (args.begin >= args.end) return;
  const int64_t floats = 3 * args.experts_total + args.groups + 2 * args.top_k;
  StartKernel({static_cast<unsigned>(args.end - args.begin), kWarp, static_cast<size_t>(floats) * sizeof(float)},
              RouteKernel, args);
  CheckLaunch("route/cuda");
}

}  // namespace

std::span<const KernelRow<Route>> Route::CudaRows() {
  static constexpr KernelRow<Route> kRows[] = {{"route/cuda", kCudaTarget, RouteCuda}};
  return kRows;
}

}  // namespace trivet::kernels
