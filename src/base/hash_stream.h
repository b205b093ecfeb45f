// SPDX-License-Identifier: Apache-2.0
// Hash128 of bytes that come in pieces.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/hash.h"

namespace trivet {

/// Hash128 of pieces one behind the other: the digest of all their bytes, however they are cut.
class HashStream {
 public:
  HashStream();
  ~HashStream();
  HashStream(const HashStream&) = delete;
  HashStream& operator=(const HashStream&) = delete;

  /// Begins anew.
  void Reset();
  /// Takes more bytes.
  void Update(std::span<const std::byte> bytes);
  /// The digest of all bytes since the last Reset.
  Digest Finish() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace trivet
