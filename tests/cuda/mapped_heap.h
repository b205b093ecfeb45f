// SPDX-License-Identifier: Apache-2.0
// The heap of the device tests: from MapHeap() on, operator new hands out page-locked memory that a device reads and
// writes at the same addresses, so that cases written for processors run on it unchanged.
#pragma once

#include <cstddef>

namespace trivet {

/// Makes `bytes` of page-locked memory the heap; false when the device's driver refuses.
bool MapHeap(size_t bytes);

}  // namespace trivet
