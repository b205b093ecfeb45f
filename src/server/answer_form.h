// SPDX-License-Identifier: Apache-2.0
// What a request asks its answer's text to be: JSON, JSON of a schema, a pattern's or one of a list.
#pragma once

#include "base/json.h"
#include "engine/constraints.h"
#include "server/api_error.h"

namespace trivet::server {

/// Reads response_format, and vLLM's guided_json, guided_regex, guided_choice and structured_outputs.
///   constraint  what holds the answer to it; null when nothing is asked
/// Errors:  400 with the field, and with the keyword of a schema that cannot be held to.
ApiStatus ReadAnswerForm(const Json& body, engine::Constraints* constraints, engine::ConstraintPtr* constraint);

}  // namespace trivet::server
