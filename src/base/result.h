// SPDX-License-Identifier: Apache-2.0
// Result and Status: how every failure that input or environment can cause is returned.
// Broken invariants are not errors of this kind; they go through CHECK (base/check.h).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace trivet {

/// What kind of failure it is; the exit status follows from it (docs/errors.md).
enum class Code {
  kUsage,        // a flag or argument is wrong
  kNotFound,     // a file, tensor or model is missing
  kInvalid,      // a file or request is malformed
  kUnsupported,  // understood, and not supported
  kInfeasible,   // no plan satisfies the request
  kCapacity,     // memory, context or cache is too small
  kIo,           // the operating system refused
  kPeer,         // a rank died, hung or reported a failure
  kDiffers,      // results that must be equal are not
};

/// The process exit status of `code`.
int ExitStatus(Code code);
/// The lower-case word used in messages and JSON, such as "invalid".
const char* CodeName(Code code);

/// One sentence: the object, what was expected, what was found, what to do.
struct Error {
  Code code;
  std::string message;
  const char* file = "";
  int line = 0;
};

/// Makes an Error at the caller's position.
[[nodiscard]] inline Error MakeError(Code code, std::string message, const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
  return Error{code, std::move(message), file, line};
}

/// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: an Error is a Status

  bool ok() const { return !error_.has_value(); }
  const Error& error() const {
    CHECK(error_.has_value());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

/// A value, or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT: a value is a Result
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: an Error is a Result

  bool ok() const { return value_.has_value(); }
  const Error& error() const {
    CHECK(error_.has_value());
    return *error_;
  }
  T& value() & {
    CHECK(value_.has_value());
    return *value_;
  }
  const T& value() const& {
    CHECK(value_.has_value());
    return *value_;
  }
  T&& value() && {
    CHECK(value_.has_value());
    return std::move(*value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::optional<T> value_;
  std::optional<Error> error_;
};

}  // namespace trivet

#define TRIVET_CONCAT_INNER(a, b) a##b
#define TRIVET_CONCAT(a, b) TRIVET_CONCAT_INNER(a, b)

/// Returns the error of a Status or Result expression from the enclosing function, if it has one.
#define TRY(expr)                                     \
  do {                                                \
    if (auto try_status = (expr); !try_status.ok()) { \
      return try_status.error();                      \
    }                                                 \
  } while (false)

/// Assigns the value of a Result expression to `lhs`, or returns its error.
#define TRY_ASSIGN(lhs, expr)                            \
  auto TRIVET_CONCAT(try_result_, __LINE__) = (expr);    \
  if (!TRIVET_CONCAT(try_result_, __LINE__).ok()) {      \
    return TRIVET_CONCAT(try_result_, __LINE__).error(); \
  }                                                      \
  lhs = std::move(TRIVET_CONCAT(try_result_, __LINE__)).value()
