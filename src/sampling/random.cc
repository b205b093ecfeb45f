// SPDX-License-Identifier: Apache-2.0
#include "sampling/random.h"

#include <fmt/format.h>

#include "base/check.h"

namespace trivet::sampling {
namespace {

constexpr uint64_t kMultiplier0 = 0xd2511f53;
constexpr uint64_t kMultiplier1 = 0xcd9e8d57;
constexpr uint32_t kWeyl0 = 0x9e3779b9;  // golden ratio
constexpr uint32_t kWeyl1 = 0xbb67ae85;  // sqrt(3) - 1

uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

std::array<uint32_t, 4> Words(const RandomKey& key) {
  CHECK_MSG(key.position >= 0 && key.position >> 32 == 0, fmt::format("position {}", key.position));
  return Philox({static_cast<uint32_t>(key.position), key.slot, Low(key.request), High(key.request)},
                {Low(key.seed), High(key.seed)});
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1), High(product0) ^ counter[3] ^ key[1],
               Low(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

double UniformDouble(const RandomKey& key) {
  const std::array<uint32_t, 4> words = Words(key);
  const uint64_t bits = (uint64_t{words[1]} << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

float UniformFloat(const RandomKey& key) { return static_cast<float>(Words(key)[0] >> 8) * 0x1p-24F; }

}  // namespace trivet::sampling
