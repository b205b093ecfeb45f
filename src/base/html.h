// SPDX-License-Identifier: Apache-2.0
// Text inside HTML.
#pragma once

#include <string>
#include <string_view>

namespace trivet {

/// `text` with & < > ' " written as HTML entities.
std::string EscapeHtml(std::string_view text);

}  // namespace trivet
