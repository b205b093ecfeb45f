// SPDX-License-Identifier: Apache-2.0
// Whether a value of one schema's grammar could be valid under another schema: what oneOf must rule out.
#pragma once

#include "base/json.h"

namespace trivet::grammar {

/// Whether some value that the grammar of `made` has may be valid under `other`. True when it cannot be told.
///   root     the document that references are resolved in
bool MayOverlap(const Json& root, const Json& made, const Json& other);

}  // namespace trivet::grammar
