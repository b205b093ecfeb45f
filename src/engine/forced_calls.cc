// SPDX-License-Identifier: Apache-2.0
#include "engine/forced_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/str.h"
#include "grammar/json_grammar.h"
#include "grammar/schema.h"

namespace trivet::engine {
namespace {

using grammar::GrammarBuilder;
using grammar::NodeId;

// Any text without `end`, of whose bytes only the first is equal to its first.
NodeId TextWithout(std::string_view end, GrammarBuilder* builder) {
  std::vector<NodeId> matched;  // so many bytes of `end`
  for (size_t i = 0; i < end.size(); ++i) matched.push_back(builder->Rule());
  const auto first = static_cast<uint8_t>(end[0]);
  for (size_t i = 0; i < end.size(); ++i) {
    const auto next = static_cast<uint8_t>(end[i]);
    grammar::CharSet others(first, first);
    others.Add(next, next);
    std::vector<NodeId> choices = {builder->Empty(),
                                   builder->Sequence({Utf8(others.Complement(), builder), matched[0]})};
    if (next != first) choices.push_back(builder->Sequence({builder->Literal(end.substr(0, 1)), matched[1]}));
    if (i + 1 < end.size()) choices.push_back(builder->Sequence({builder->Literal(end.substr(i, 1)), matched[i + 1]}));
    builder->Define(matched[i], builder->Choice(std::move(choices)));
  }
  return matched[0];
}

// Writes the calls of one request.
class CallWriter {
 public:
  CallWriter(const ForcedCalls& forced, GrammarBuilder* builder) : forced_(forced), builder_(*builder) {}

  Result<NodeId> Write() {
    std::vector<NodeId> calls;
    for (const Json& tool : forced_.tools) {
      const Json& function = Member(tool, "function");
      const Json empty = {{"type", "object"}, {"properties", Json::object()}};
      const Json& given = Member(function, "parameters");
      const Json& parameters = given.is_null() || given.empty() ? empty : given;
      const auto name = function["name"].get<std::string>();
      const std::string what = fmt::format("tools: {}: parameters", Quote(name));
      const bool json = forced_.style == ToolStyle::kJson;
      TRY_ASSIGN(const NodeId call, json ? JsonCall(name, parameters, what) : XmlCall(name, parameters, what));
      calls.push_back(call);
    }
    const NodeId call = builder_.Sequence(
        {builder_.Literal("<tool_call>\n"), builder_.Choice(std::move(calls)), builder_.Literal("\n</tool_call>")});
    const NodeId more = builder_.Sequence({builder_.Literal("\n"), call});
    return builder_.Sequence({call, builder_.Repeat(more, 0, forced_.parallel ? kMaxForcedCalls - 1 : 0)});
  }

 private:
  Result<NodeId> JsonCall(const std::string& name, const Json& parameters, const std::string& what) {
    TRY_ASSIGN(const NodeId arguments, grammar::SchemaReader(&parameters, what, &builder_).Read());
    return builder_.Sequence({builder_.Literal("{\"name\": " + DumpJson(Json(name)) + ", \"arguments\": "), arguments,
                              builder_.Literal("}")});
  }

  Result<NodeId> XmlCall(const std::string& name, const Json& parameters, const std::string& what) {
    std::vector<NodeId> parts = {builder_.Literal("<function=" + name + ">\n")};
    const Json& required = Member(parameters, "required");
    for (const auto& [key, schema] : Member(parameters, "properties").items()) {
      TRY_ASSIGN(const NodeId value, XmlValue(schema, parameters, what + "/properties/" + key));
      const NodeId part = builder_.Sequence(
          {builder_.Literal("<parameter=" + key + ">\n"), value, builder_.Literal("\n</parameter>\n")});
      const bool needed = std::find(required.begin(), required.end(), Json(key)) != required.end();
      parts.push_back(needed ? part : builder_.Optional(part));
    }
    parts.push_back(builder_.Literal("</function>"));
    return builder_.Sequence(std::move(parts));
  }

  // A plain string is the text itself, everything else is JSON.
  Result<NodeId> XmlValue(const Json& schema, const Json& parameters, const std::string& what) {
    const Json& values = Member(schema, "enum");
    const bool texts = values.is_array() && std::all_of(values.begin(), values.end(), [](const Json& value) {
                         return value.is_string() && value.get<std::string>().find("</parameter>") == std::string::npos;
                       });
    if (texts) {
      std::vector<std::string> all;
      for (const Json& value : values) all.push_back(value.get<std::string>());
      return builder_.Literals(std::move(all));
    }
    if (Member(schema, "type") == "string") {
      for (const char* keyword : {"pattern", "format", "minLength", "maxLength", "enum", "const"}) {
        if (Find(schema, keyword) == nullptr) continue;
        return MakeError(Code::kUnsupported, fmt::format("{}: \"{}\": expected a string without it, since this model's "
                                                         "calls have no JSON strings, found it; leave it out",
                                                         Quote(what), keyword));
      }
      return TextWithout("</parameter>", &builder_);
    }
    Json document = schema;
    for (const char* definitions : {"$defs", "definitions"}) {
      if (document.is_object() && Find(parameters, definitions) != nullptr) {
        document[definitions] = parameters[definitions];
      }
    }
    return grammar::SchemaReader(&document, what, &builder_).Read();
  }

  const ForcedCalls& forced_;
  GrammarBuilder& builder_;
};

}  // namespace

Result<ConstraintPtr> ForceCalls(const ForcedCalls& forced, Constraints* constraints) {
  const Constraints::Writer write = [&](GrammarBuilder* builder) { return CallWriter(forced, builder).Write(); };
  const std::string key =
      fmt::format("calls {} {} {}", static_cast<int>(forced.style), forced.parallel, DumpJson(forced.tools));
  return constraints->Get(key, write, "tools");
}

}  // namespace trivet::engine
