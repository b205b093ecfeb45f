// SPDX-License-Identifier: Apache-2.0
#include "server/answer_form.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace trivet::server {
namespace {

// One way of asking: what for, and the field that does.
struct Asked {
  std::string kind;  // "object", "json", "regex" or "choice"
  Json value;
  std::string param;
};

ApiStatus ReadResponseFormat(const Json& format, std::vector<Asked>* asked) {
  const Json& type = Member(format, "type");
  if (format.is_null() || type == "text") return {};
  if (type == "json_object") {
    asked->push_back({"object", format, "response_format"});
    return {};
  }
  if (type != "json_schema") {
    return WrongField("response_format", "type text, json_object or json_schema", format);
  }
  const Json& schema = Member(Member(format, "json_schema"), "schema");
  if (schema.is_null()) return WrongField("response_format", "\"json_schema\" with a \"schema\"", format);
  asked->push_back({"json", schema, "response_format"});
  return {};
}

// Whether the value is of the type that its kind of form has.
ApiStatus CheckType(const Asked& asked) {
  const Json& value = asked.value;
  if (asked.kind == "regex" && !value.is_string()) return WrongField(asked.param, "a text", value);
  if (asked.kind != "choice") return {};
  const auto is_text = [](const Json& one) { return one.is_string(); };
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_text)) return {};
  return WrongField(asked.param, "a list of texts", value);
}

Result<engine::ConstraintPtr> Make(const Asked& asked, engine::Constraints* constraints) {
  if (asked.kind == "object") return constraints->JsonObject();
  if (asked.kind == "json") return constraints->Schema(asked.value, asked.param);
  if (asked.kind == "regex") return constraints->Pattern(asked.value.get<std::string>(), asked.param);
  return constraints->Choice(asked.value.get<std::vector<std::string>>(), asked.param);
}

}  // namespace

ApiStatus ReadAnswerForm(const Json& body, engine::Constraints* constraints, engine::ConstraintPtr* constraint) {
  std::vector<Asked> asked;
  TRY(ReadResponseFormat(Member(body, "response_format"), &asked));
  for (const char* kind : {"json", "regex", "choice"}) {
    const std::string param = std::string("guided_") + kind;
    if (const Json& value = Member(body, param); !value.is_null()) asked.push_back({kind, value, param});
  }
  if (const Json& structured = Member(body, "structured_outputs"); !structured.is_null()) {
    if (!structured.is_object()) return WrongField("structured_outputs", "an object", structured);
    for (const auto& [key, value] : structured.items()) {
      if (value.is_null() || value == false) continue;
      const std::string kind = key == "json_object" ? "object" : key;
      const std::string param = "structured_outputs." + key;
      if (kind != "object" && kind != "json" && kind != "regex" && kind != "choice") {
        return WrongField(param, "json, json_object, regex or choice", value, "leave it out");
      }
      if (kind == "object" && value != true) return WrongField(param, "true or false", value);
      asked.push_back({kind, value, param});
    }
  }
  if (asked.empty()) return {};
  if (asked.size() > 1) {
    return WrongField(asked[1].param, "one way of asking for a form, not " + asked[0].param + " as well",
                      asked[1].value, "leave one out");
  }
  // vLLM takes a schema as text too.
  if (asked[0].kind == "json" && asked[0].value.is_string()) {
    Result<Json> parsed = ParseJson(asked[0].value.get<std::string>(), asked[0].param);
    if (!parsed.ok()) return FromError(parsed.error(), asked[0].param);
    asked[0].value = std::move(parsed).value();
  }
  TRY(CheckType(asked[0]));
  Result<engine::ConstraintPtr> made = Make(asked[0], constraints);
  if (!made.ok()) return FromError(made.error(), asked[0].param);
  *constraint = std::move(made).value();
  return {};
}

}  // namespace trivet::server
