// SPDX-License-Identifier: Apache-2.0
// Normalizers of tokenizer.json: what is done to text before it is cut into words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace trivet::text {

/// A normalizer or a sequence of them; applying it is const and thread-safe. Move-only.
class Normalizer {
 public:
  /// Reads the "normalizer" member; null gives one that changes nothing.
  ///   what     the object's name for messages
  /// Errors:  kUnsupported for an unknown type, kInvalid when a member is malformed.
  static Result<Normalizer> FromJson(const Json& json, std::string_view what);

  /// Valid UTF-8, normalised.  Errors: those of Regex::Split.
  Result<std::string> Apply(std::string_view text) const;

 private:
  enum class Kind { kForm, kLowercase, kStrip, kStripAccents, kReplace, kPrepend, kByteLevel };
  struct Step {
    Kind kind = Kind::kForm;
    NormalForm form = NormalForm::kNfc;  // kForm
    bool left = false;                   // kStrip: at the start
    bool right = false;                  // kStrip: at the end
    std::optional<Regex> pattern;        // kReplace
    std::string content;                 // kReplace: what comes instead; kPrepend: what comes before
  };

  static Result<Step> ReadStep(const Json& json, std::string_view type, std::string_view what);
  static Result<std::string> ApplyStep(const Step& step, std::string_view text);

  std::vector<Step> steps_;
};

/// `text` with every match of `pattern` replaced by `content`.  Errors: those of Regex::Split.
Result<std::string> ReplaceMatches(const Regex& pattern, std::string_view text, std::string_view content);

}  // namespace trivet::text
