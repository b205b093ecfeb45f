// SPDX-License-Identifier: Apache-2.0
// Rendering in one call, for tests of the template language.
#pragma once

#include <string>

#include "text/chat_template.h"

namespace trivet::text {

/// The text of a template with the members of a JSON object as variables, or "error: " and the message.
inline std::string Render(const std::string& source, const std::string& context = "{}") {
  const Result<Json> variables = ParseJson(context, "context");
  if (!variables.ok()) return "context: " + variables.error().message;
  const Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return "error: " + parsed.error().message;
  const Result<std::string> text = parsed->Render(*variables);
  return text.ok() ? *text : "error: " + text.error().message;
}

/// What one expression prints.
inline std::string Print(const std::string& expression, const std::string& context = "{}") {
  return Render("{{ " + expression + " }}", context);
}

/// Whether a template fails.
inline bool Fails(const std::string& source, const std::string& context = "{}") {
  return Render(source, context).starts_with("error: ");
}

}  // namespace trivet::text
