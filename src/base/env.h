// SPDX-License-Identifier: Apache-2.0
// The process's environment, as far as libraries take settings from it.
#pragma once

#include <string>

namespace trivet {

/// The folder in which the user's programs keep what they can make again, or "" where the environment names none.
std::string UserCacheDir();

/// Sets a variable unless the user has.
void SetDefaultEnv(const char* name, const char* value);

}  // namespace trivet
