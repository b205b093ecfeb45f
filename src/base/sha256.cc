// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace trivet {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t BigEndian(const std::byte* at) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<uint32_t>(at[i]);
  return word;
}

void PlainBlock(uint32_t* state, const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = BigEndian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  std::array<uint32_t, 8> now;
  std::copy_n(state, 8, now.begin());
  auto& [a, b, c, d, e, f, g, h] = now;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  for (size_t i = 0; i < 8; ++i) state[i] += now[i];
}

void PlainBlocks(uint32_t* state, const std::byte* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) PlainBlock(state, blocks);
}

#if defined(__x86_64__)

// Two rounds of the processor take the state as (a, b, e, f) and (c, d, g, h), the first named in the highest lane.
__attribute__((target("sha,sse4.1"))) void ShaBlocks(uint32_t* state, const std::byte* blocks, size_t count) {
  const auto load = [](const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); };
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i badc = _mm_shuffle_epi32(load(state), 0xB1), efgh = _mm_shuffle_epi32(load(state + 4), 0x1B);
  __m128i abef = _mm_alignr_epi8(badc, efgh, 8), cdgh = _mm_blend_epi16(efgh, badc, 0xF0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {  // four rounds each
      __m128i& now = w[i % 4];
      if (i < 4) {
        now = _mm_shuffle_epi8(load(blocks + 16 * i), big_endian);
      } else {
        const __m128i last = w[(i + 3) % 4];
        const __m128i sum =
            _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
        now = _mm_sha256msg2_epu32(sum, last);
      }
      const __m128i keyed = _mm_add_epi32(now, load(&kRound[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, keyed);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(keyed, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool HasShaInstructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool sse41 = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_1) != 0;
  return sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

constexpr auto kShaBlocks = ShaBlocks;
#else
bool HasShaInstructions() { return false; }

constexpr auto kShaBlocks = PlainBlocks;
#endif

}  // namespace

Sha256::Sha256(Code code) : blocks_(PlainBlocks) {
  static const bool has_instructions = HasShaInstructions();  // to ask takes long on virtual machines
  if (code == Code::kBest && has_instructions) blocks_ = kShaBlocks;
}

void Sha256::Update(std::span<const std::byte> bytes) {
  const size_t held = bytes_ % 64;
  bytes_ += bytes.size();
  if (held > 0) {
    const size_t taken = std::min(64 - held, bytes.size());
    std::copy_n(bytes.begin(), taken, rest_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(taken);
    if (held + taken < 64) return;
    blocks_(state_.data(), rest_.data(), 1);
  }
  blocks_(state_.data(), bytes.data(), bytes.size() / 64);
  bytes = bytes.subspan(bytes.size() / 64 * 64);
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

std::string Sha256::Finish() {
  const uint64_t bits = bytes_ * 8;
  std::array<std::byte, 128> end{};
  end[0] = std::byte{0x80};
  const size_t held = bytes_ % 64, padding = (held < 56 ? 56 : 120) - held;
  for (size_t i = 0; i < 8; ++i) end[padding + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  Update(std::span(end).first(padding + 8));
  std::string text;
  for (const uint32_t word : state_) text += fmt::format("{:08x}", word);
  return text;
}

std::string Sha256Hex(std::string_view text) {
  Sha256 hash;
  hash.Update(std::as_bytes(std::span(text)));
  return hash.Finish();
}

}  // namespace trivet
