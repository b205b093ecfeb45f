// SPDX-License-Identifier: Apache-2.0
// The messages of a chat request, checked and brought into the form that chat templates read.
#pragma once

#include "base/json.h"
#include "server/api_error.h"

namespace trivet::server {

/// Checks "messages" of a request: roles, contents, tool calls. Contents become strings: text parts are joined by
/// newlines, an absent or null one is empty; the role developer becomes system.
/// Errors:  400 with the path of the field, such as "messages[2].content".
ApiStatus ReadMessages(const Json& body, Json* messages);

/// Checks "tools": a list of functions with names.
///   tools  the list, or null when there is none or when tool_choice is "none"
/// Errors:  400, also for a tool_choice that would have to force the model's hand.
ApiStatus ReadTools(const Json& body, Json* tools);

}  // namespace trivet::server
