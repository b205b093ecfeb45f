// SPDX-License-Identifier: Apache-2.0
// Post-processors of tokenizer.json: the special tokens put around an encoded text on request.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"

namespace trivet::text {

/// The tokens before and after a text.
class PostProcessor {
 public:
  /// Reads the "post_processor" member; null gives one that adds nothing. Only templates for one text are read.
  ///   vocab_size   largest token id + 1
  ///   what         the object's name for messages
  /// Errors:        kUnsupported for an unknown type or more than one template, kInvalid when a member is malformed.
  static Result<PostProcessor> FromJson(const Json& json, int64_t vocab_size, std::string_view what);

  /// Tokens that come before and after the text's own.
  const std::vector<TokenId>& before() const { return before_; }
  const std::vector<TokenId>& after() const { return after_; }

 private:
  Status ReadTemplate(const Json& json, int64_t vocab_size, std::string_view what);

  std::vector<TokenId> before_;
  std::vector<TokenId> after_;
};

}  // namespace trivet::text
