// SPDX-License-Identifier: Apache-2.0
// What answers can be held to: grammars on a model's vocabulary, made from schemas and patterns and kept for later
// requests.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/constraint.h"
#include "text/tokenizer.h"

namespace trivet::engine {

// shared_ptr: requests with one form share its states, and the last of them frees it.
using ConstraintPtr = std::shared_ptr<grammar::Constraint>;

/// Makes constraints for one model. For any thread; what it makes belongs to the thread that generates.
class Constraints {
 public:
  /// The tokenizer outlives it.
  ///   end_tokens  end a text, and are never part of one
  Constraints(const text::Tokenizer* tokenizer, std::vector<int64_t> end_tokens)
      : tokenizer_(*tokenizer), end_tokens_(std::move(end_tokens)) {}

  /// Any JSON object.
  Result<ConstraintPtr> JsonObject();
  /// JSON that is valid under a schema; grammar/schema.h says how it is written.
  ///   what     its name in messages
  /// Errors:  kInvalid and kUnsupported name the keyword.
  Result<ConstraintPtr> Schema(const Json& schema, const std::string& what);
  /// A text that a regular expression matches whole.  Errors: those of grammar::ReadPattern.
  Result<ConstraintPtr> Pattern(const std::string& pattern, const std::string& what);
  /// One of the texts.  Errors: kInvalid when there is none, or an empty one.
  Result<ConstraintPtr> Choice(const std::vector<std::string>& texts, const std::string& what);

  /// What `write` writes.
  ///   key      the same for the same grammar
  using Writer = std::function<Result<grammar::NodeId>(grammar::GrammarBuilder* builder)>;
  Result<ConstraintPtr> Get(const std::string& key, const Writer& write, const std::string& what);

 private:
  const grammar::TokenTrie& Vocabulary();

  const text::Tokenizer& tokenizer_;
  const std::vector<int64_t> end_tokens_;
  std::once_flag made_vocabulary_;
  std::unique_ptr<const grammar::TokenTrie> vocabulary_;     // made when first needed
  std::mutex mutex_;                                         // of what follows
  std::deque<std::pair<std::string, ConstraintPtr>> known_;  // the last ones, by key
};

}  // namespace trivet::engine
