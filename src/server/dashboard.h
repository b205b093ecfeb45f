// SPDX-License-Identifier: Apache-2.0
// The page that a browser shows, and the facts that it asks for.
#pragma once

#include <string_view>

#include "base/json.h"
#include "engine/service.h"

namespace trivet::server {

/// The page, from src/server/dashboard.html. It asks nobody but this server.
std::string_view DashboardPage();

/// What it shows of a service: load, KV cache, memory and time by rank.
Json DashboardJson(const engine::ServiceCounts& counts);

}  // namespace trivet::server
