// SPDX-License-Identifier: Apache-2.0
// The process's environment, as far as libraries take settings from it.
#pragma once

namespace trivet {

/// Sets a variable unless the user has.
void SetDefaultEnv(const char* name, const char* value);

}  // namespace trivet
