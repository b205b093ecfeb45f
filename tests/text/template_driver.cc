// SPDX-License-Identifier: Apache-2.0
// Renders templates for tests/oracle/template_oracle.py: one JSON object {"template", "context"} a line in, one object
// {"text"} or {"error"} a line out.
#include <iostream>
#include <string>

#include "text/chat_template.h"

namespace {

using trivet::Json;

trivet::Result<std::string> RenderLine(const std::string& line) {
  TRY_ASSIGN(const Json request, trivet::ParseJson(line, "request"));
  TRY_ASSIGN(std::string source, trivet::GetString(request, "template", "", "request"));
  TRY_ASSIGN(const auto parsed, trivet::text::ChatTemplate::Parse(std::move(source)));
  const Json* context = trivet::Find(request, "context");
  return parsed.Render(context == nullptr ? Json::object() : *context);
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const trivet::Result<std::string> text = RenderLine(line);
    Json reply = Json::object();
    reply[text.ok() ? "text" : "error"] = text.ok() ? *text : text.error().message;
    std::cout << trivet::DumpJson(reply) << std::endl;
  }
  return 0;
}
