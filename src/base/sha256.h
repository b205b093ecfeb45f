// SPDX-License-Identifier: Apache-2.0
// SHA-256, for seals of files: what somebody may want to check with another program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trivet {

/// SHA-256 of bytes that come in pieces.
/// Source:  FIPS 180-4.
class Sha256 {
 public:
  /// How blocks are computed; the digest is the same.
  enum class Code {
    kBest,   // with the processor's instructions for it, where it has them
    kPlain,  // without
  };
  explicit Sha256(Code code = Code::kBest);

  /// Takes more bytes.
  void Update(std::span<const std::byte> bytes);
  /// The digest of all bytes as 64 hexadecimal digits. Call once.
  std::string Finish();

 private:
  using Blocks = void (*)(uint32_t* state, const std::byte* blocks, size_t count);

  Blocks blocks_;
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_{};  // bytes that fill no block yet
  uint64_t bytes_ = 0;
};

/// SHA-256 of `text` as 64 hexadecimal digits.
std::string Sha256Hex(std::string_view text);

}  // namespace trivet
