// SPDX-License-Identifier: Apache-2.0
// A JSON schema, and after a zero byte the choices that write one of its documents: whatever may end there is JSON of
// the type that the schema names, and one of the values that it lists.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "grammar/automaton.h"
#include "grammar/schema.h"

namespace {

using trivet::Json;
using trivet::grammar::Automaton;
using trivet::grammar::StateId;

// Bytes of a document at most: fewer than the levels that a JSON text may have.
constexpr size_t kLongest = 60;

std::vector<char> Allowed(Automaton* automaton, StateId state) {
  std::vector<char> allowed;
  for (int byte = 0; byte < 256; ++byte) {
    const auto next = static_cast<uint8_t>(byte);
    if (automaton->Step(state, next) != trivet::grammar::kDead) allowed.push_back(static_cast<char>(next));
  }
  return allowed;
}

void CheckDocument(const Json& schema, const std::string& text) {
  const auto document = trivet::ParseJson(text, "document");
  CHECK_MSG(document.ok(), text);
  if (!schema.is_object()) return;
  for (const char* other : {"$ref", "anyOf", "oneOf", "allOf"}) {
    if (schema.contains(other)) return;
  }
  if (schema.contains("const")) CHECK_MSG(*document == schema["const"], text);
  if (schema.contains("enum")) {
    CHECK_MSG(std::count(schema["enum"].begin(), schema["enum"].end(), *document) > 0, text);
  }
  const std::vector<std::string> types = trivet::grammar::TypesOf(schema);
  CHECK_MSG(std::any_of(types.begin(), types.end(),
                        [&](const std::string& type) { return trivet::grammar::IsOfType(*document, type); }),
            text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const auto schema = trivet::ParseJson(input.substr(0, end), "fuzz");
  if (!schema.ok()) return 0;
  trivet::grammar::GrammarBuilder builder;
  const auto root = trivet::grammar::SchemaReader(&*schema, "fuzz", &builder).Read();
  if (!root.ok()) return 0;
  const auto grammar = std::move(builder).Finish(*root, "fuzz");
  if (!grammar.ok()) return 0;
  Automaton automaton(&*grammar);
  StateId state = automaton.start();
  if (state == trivet::grammar::kDead) return 0;
  std::string text;
  for (size_t at = end + 1; at < size && text.size() < kLongest; ++at) {
    if (automaton.CanEnd(state)) CheckDocument(*schema, text);
    const std::vector<char> allowed = Allowed(&automaton, state);
    if (allowed.empty()) return 0;
    text.push_back(allowed[data[at] % allowed.size()]);
    state = automaton.Step(state, static_cast<uint8_t>(text.back()));
  }
  if (automaton.CanEnd(state)) CheckDocument(*schema, text);
  return 0;
}
