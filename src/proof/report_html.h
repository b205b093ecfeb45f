// SPDX-License-Identifier: Apache-2.0
// A report as one HTML page that needs nothing else.
#pragma once

#include <string>

#include "base/json.h"

namespace trivet::proof {

/// The page of a report of Verify (Report::json).
std::string ReportHtml(const Json& report);

}  // namespace trivet::proof
