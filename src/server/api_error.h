// SPDX-License-Identifier: Apache-2.0
// Errors as OpenAI's API tells them: a status, and an object that names the field at fault.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace trivet::server {

/// A request that could not be answered.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the field at fault; empty when there is none
  std::string code;   // a word that programs test; empty when there is none

  /// {"error": {"message", "type", "param", "code"}}
  Json ToJson() const;
};

/// What an error of ours is to a client: 400 for what the request caused, 503 for what the service suffered.
ApiError FromError(const Error& error, std::string param = "");

/// Success, or an ApiError. TRY returns an Error as one too.
class [[nodiscard]] ApiStatus {
 public:
  ApiStatus() = default;
  ApiStatus(ApiError error) : error_(std::move(error)) {}      // NOLINT: an ApiError is an ApiStatus
  ApiStatus(const Error& error) : error_(FromError(error)) {}  // NOLINT: and so is an Error

  bool ok() const { return !error_.has_value(); }
  const ApiError& error() const {
    CHECK(error_.has_value());
    return *error_;
  }

 private:
  std::optional<ApiError> error_;
};

/// A field that is wrong: "param: expected ..., found ...; ...".
///   found  the value as it came; null means absent
ApiError WrongField(const std::string& param, const std::string& expected, const Json& found,
                    const std::string& advice = "correct it");

}  // namespace trivet::server
