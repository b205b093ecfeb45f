// SPDX-License-Identifier: Apache-2.0
#include "plan/leaf.h"

#include <algorithm>

namespace trivet::plan {

int64_t WidthLeaf(int64_t width, int64_t block) {
  constexpr int64_t kLongest = 128;
  constexpr int64_t kShortest = 16;
  for (int64_t leaf = std::max(kLongest, block); leaf > kShortest; leaf /= 2) {
    if (width % leaf == 0) return leaf;
  }
  return kShortest;
}

int64_t HeadLeaf(int64_t head_dim) {
  int64_t leaf = head_dim;
  while (leaf > kColumnLeaf) leaf = (leaf + 1) / 2;
  return leaf;
}

}  // namespace trivet::plan
