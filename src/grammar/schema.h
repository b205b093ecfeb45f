// SPDX-License-Identifier: Apache-2.0
// JSON schemas as grammars. Every text of the grammar is valid under the schema; of the valid ones it has those with
// the members of an object in the order of "properties", and members that are not listed only where the schema says so.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/grammar.h"
#include "grammar/json_grammar.h"

namespace trivet::grammar {

/// Reads one schema document into a builder. Both outlive it.
class SchemaReader {
 public:
  ///   what   the schema's name in messages
  SchemaReader(const Json* root, std::string what, GrammarBuilder* builder)
      : root_(*root), what_(std::move(what)), builder_(*builder), json_(builder) {}

  /// The values that the document allows; to be called once.
  /// Errors:  kUnsupported and kInvalid name the keyword and where it is.
  Result<NodeId> Read();

 private:
  struct Member {
    std::string name;
    NodeId value = 0;
    bool required = false;
  };

  Error Wrong(const std::string& where, std::string_view keyword, std::string_view expected, const Json& found) const;
  Error Unsupported(const std::string& where, std::string_view keyword, std::string_view advice) const;
  Result<NodeId> Value(const Json& schema, const std::string& where);
  Status CheckKeywords(const Json& schema, const std::string& where) const;
  Status CheckAlone(const Json& schema, std::string_view keyword, const std::string& where) const;
  Result<NodeId> Reference(const Json& schema, const std::string& where);
  Result<NodeId> Enumerated(const Json& schema, const std::string& where);
  Result<NodeId> Combined(const Json& schema, std::string_view keyword, const std::string& where);
  Result<NodeId> OfType(std::string_view type, const Json& schema, const std::string& where);
  Result<NodeId> Object(const Json& schema, const std::string& where);
  Result<std::vector<Member>> Members(const Json& schema, NodeId other, const std::string& where);
  Result<NodeId> Array(const Json& schema, const std::string& where);
  Result<NodeId> String(const Json& schema, const std::string& where);
  Result<NodeId> Integer(const Json& schema, const std::string& where);
  Result<NodeId> Number(const Json& schema, const std::string& where);
  Result<int32_t> Count(const Json& schema, const char* keyword, int32_t fallback, const std::string& where) const;

  const Json& root_;
  const std::string what_;
  GrammarBuilder& builder_;
  JsonGrammar json_;
  std::map<std::string, NodeId> rules_;  // by reference
  std::vector<std::string> undefined_;   // references whose rules wait to be defined
};

/// The types that a schema without references and combinations allows: those of "type", of its values, or those that
/// its keywords speak of; all where it says nothing.
std::vector<std::string> TypesOf(const Json& schema);
/// Whether a value is of a type that "type" can name.
bool IsOfType(const Json& value, std::string_view type);
/// What a reference such as "#/$defs/name" leads to, or null.
const Json* Resolve(const Json& root, const std::string& reference);

}  // namespace trivet::grammar
