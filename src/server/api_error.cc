// SPDX-License-Identifier: Apache-2.0
#include "server/api_error.h"

#include <fmt/format.h>

#include "base/str.h"

namespace trivet::server {
namespace {

const char* TypeOf(int status) {
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

Json ApiError::ToJson() const {
  return {
      {"error", {{"message", message}, {"type", TypeOf(status)}, {"param", OrNull(param)}, {"code", OrNull(code)}}}};
}

ApiError FromError(const Error& error, std::string param) {
  switch (error.code) {
    case Code::kCapacity:
      return {400, error.message, std::move(param), "context_length_exceeded"};
    case Code::kNotFound:
      return {404, error.message, std::move(param), "not_found"};
    case Code::kUsage:
    case Code::kInvalid:
    case Code::kUnsupported:
    case Code::kInfeasible:
      return {400, error.message, std::move(param), ""};
    case Code::kIo:
    case Code::kPeer:
    case Code::kDiffers:
      return {503, error.message, "", "service_unavailable"};
  }
  return {500, error.message, "", ""};
}

ApiError WrongField(const std::string& param, const std::string& expected, const Json& found,
                    const std::string& advice) {
  const std::string text = found.is_null() ? "none" : Quote(DumpJson(found), 80);
  return {400, fmt::format("{}: expected {}, found {}; {}", param, expected, text, advice), param, ""};
}

}  // namespace trivet::server
