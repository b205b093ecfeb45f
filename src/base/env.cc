// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <cstdlib>

namespace trivet {

void SetDefaultEnv(const char* name, const char* value) { ::setenv(name, value, 0); }

}  // namespace trivet
