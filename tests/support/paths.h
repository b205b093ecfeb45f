// SPDX-License-Identifier: Apache-2.0
// Where the source tree and the program under test are. A generated source knows it, so that no test's compilation
// depends on the folder that it is built in.
#pragma once

#include <string>

namespace trivet {

/// Root of the source tree.
std::string SourceRoot();
/// The program.
std::string ProgramPath();

/// Folder of the demo model.
inline std::string DemoDir() { return SourceRoot() + "/models/demo"; }
/// Folder of a small model with frozen logits.
inline std::string CaseDir(const std::string& name) { return SourceRoot() + "/tests/golden/cases/" + name; }

}  // namespace trivet
