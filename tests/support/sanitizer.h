// SPDX-License-Identifier: Apache-2.0
// Whether this build has a sanitizer, under which freed memory is kept and everything takes several times as long.
#pragma once

namespace trivet::support {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace trivet::support
