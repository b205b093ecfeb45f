// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_overlap.h"

#include <algorithm>
#include <string>
#include <vector>

#include "grammar/schema.h"

namespace trivet::grammar {
namespace {

constexpr int kMaxDepth = 8;  // of members looked into; beyond, overlap is assumed

// Follows references.
const Json& Target(const Json& root, const Json& schema) {
  const Json* at = &schema;
  for (int hops = 0; hops < kMaxDepth && Member(*at, "$ref").is_string(); ++hops) {
    const Json* next = Resolve(root, Member(*at, "$ref").get<std::string>());
    if (next == nullptr) break;
    at = next;
  }
  return *at;
}

// The alternatives that a schema is the union of: itself when it has none.
std::vector<const Json*> Alternatives(const Json& schema) {
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    const Json& list = Member(schema, keyword);
    if (!list.is_array() || (keyword[1] == 'l' && list.size() != 1)) continue;
    std::vector<const Json*> all;
    for (const Json& one : list) all.push_back(&one);
    return all;
  }
  return {&schema};
}

// The values of const or enum, or nothing.
std::vector<Json> Values(const Json& schema) {
  if (Find(schema, "const") != nullptr) return {Member(schema, "const")};
  const Json& list = Member(schema, "enum");
  return list.is_array() ? std::vector<Json>(list.begin(), list.end()) : std::vector<Json>();
}

bool Listed(const Json& list, const std::string& name) {
  return list.is_array() && std::find(list.begin(), list.end(), Json(name)) != list.end();
}

bool TypesMeet(const std::vector<std::string>& made, const std::vector<std::string>& other) {
  const auto number = [](const std::string& type) { return type == "integer" || type == "number"; };
  for (const std::string& a : made) {
    for (const std::string& b : other) {
      if (a == b || (number(a) && number(b))) return true;
    }
  }
  return false;
}

bool Overlap(const Json& root, const Json& made, const Json& other, int depth);

bool ObjectsOverlap(const Json& root, const Json& made, const Json& other, int depth) {
  const Json& has = Member(made, "properties");
  const Json& wants = Member(other, "properties");
  const Json& more = Member(made, "additionalProperties");
  const bool closed = more == false || (more.is_null() && !has.is_null());
  for (const Json& name : Member(other, "required")) {
    const bool always_absent = closed && name.is_string() && Find(has, name.get<std::string>()) == nullptr &&
                               !Listed(Member(made, "required"), name.get<std::string>());
    if (always_absent) return false;
  }
  for (const Json& name : Member(made, "required")) {
    if (!name.is_string()) continue;
    const Json* mine = Find(has, name.get<std::string>());
    const Json* theirs = Find(wants, name.get<std::string>());
    if (theirs == nullptr && Member(other, "additionalProperties") == false) return false;
    if (mine != nullptr && theirs != nullptr && !Overlap(root, *mine, *theirs, depth + 1)) return false;
  }
  return true;
}

bool Overlap(const Json& root, const Json& made, const Json& other, int depth) {
  if (depth > kMaxDepth) return true;
  const Json& a = Target(root, made);
  const Json& b = Target(root, other);
  if (!a.is_object() || !b.is_object()) return a != false && b != false;
  const std::vector<const Json*> parts = Alternatives(a), others = Alternatives(b);
  if (parts.size() != 1 || others.size() != 1 || parts[0] != &a || others[0] != &b) {
    for (const Json* part : parts) {
      for (const Json* one : others) {
        if (Overlap(root, *part, *one, depth + 1)) return true;
      }
    }
    return false;
  }
  const std::vector<Json> mine = Values(a), theirs = Values(b);
  if (!mine.empty() && !theirs.empty()) {
    return std::find_first_of(mine.begin(), mine.end(), theirs.begin(), theirs.end()) != mine.end();
  }
  const std::vector<std::string> types = TypesOf(a);
  // A type that `other` does not name, it does not forbid.
  if (Find(b, "type") == nullptr && theirs.empty()) return true;
  if (!TypesMeet(types, TypesOf(b))) return false;
  const bool objects = types == std::vector<std::string>{"object"} && TypesOf(b) == types;
  return !objects || ObjectsOverlap(root, a, b, depth);
}

}  // namespace

bool MayOverlap(const Json& root, const Json& made, const Json& other) { return Overlap(root, made, other, 0); }

}  // namespace trivet::grammar
