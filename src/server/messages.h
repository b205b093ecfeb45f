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

/// What a request says about function calls.
struct ToolRequest {
  Json tools;            // the list, or null when there is none or when tool_choice is "none"
  Json forced;           // those of which at least one must be called, or null
  bool parallel = true;  // more than one call to an answer
};

/// Checks "tools", "tool_choice" and "parallel_tool_calls".
/// Errors:  400 with the field.
ApiStatus ReadTools(const Json& body, ToolRequest* request);

}  // namespace trivet::server
