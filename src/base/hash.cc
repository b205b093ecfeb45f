// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <xxhash.h>

namespace trivet {

uint64_t Hash64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace trivet
