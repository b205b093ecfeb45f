// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fmt/format.h>

#include <unordered_set>

#include "base/str.h"

namespace trivet {
namespace {

// Builds the document from parser events, so that depth and duplicate keys are judged before anything grows.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return Fail("a binary value"); }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& value) override {
    if (!keys_.back().insert(value).second) return Fail(fmt::format("the duplicate key \"{}\"", Quote(value)));
    key_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    return Fail(fmt::format("an error at byte {}: {}", position, Explain(error.what())));
  }

  Json TakeRoot() { return std::move(root_); }
  const std::string& failure() const { return failure_; }

 private:
  // The library's text names its own classes first; what follows the last colon-bracket prefix is for people.
  static std::string Explain(const std::string& text) {
    const size_t end = text.find("] ");
    return Quote(end == std::string::npos ? text : text.substr(end + 2));
  }
  bool Fail(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
    return false;
  }
  Json* Place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& object = parent.get_ref<Json::object_t&>();
    object.emplace_back(std::move(key_), std::move(value));
    return &object.back().second;
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      return Fail(fmt::format("values nested deeper than {} levels", limits_.max_depth));
    }
    stack_.push_back(Place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool Close() {
    stack_.pop_back();
    keys_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> stack_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::string key_;
  std::string failure_;
};

Error WrongType(std::string_view what, std::string_view key, const char* expected, const Json& found) {
  return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected {}, found {}; correct it", what, key, expected,
                                               Quote(DumpJson(found), 80)));
}

}  // namespace

Result<Json> ParseJson(std::string_view text, std::string_view what, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return MakeError(Code::kCapacity, fmt::format("{}: expected at most {} bytes of JSON, found {}; shorten it", what,
                                                  limits.max_bytes, text.size()));
  }
  // The parser takes a NUL for the end of its input, which would hide what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected valid JSON, found a NUL byte at byte {}; correct it", what, nul));
  }
  Builder builder(limits);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  if (!parsed) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected valid JSON, found {}; correct it", what, builder.failure()));
  }
  return builder.TakeRoot();
}

Result<Json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  TRY_ASSIGN(const std::string text, ReadTextFile(path, limits.max_bytes));
  return ParseJson(text, path, limits);
}

const Json* Find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

const Json& Member(const Json& object, std::string_view key) {
  static const Json kAbsent;
  const Json* found = Find(object, key);
  return found == nullptr ? kAbsent : *found;
}

bool IsInt64(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  return value.is_number_integer();
}

Result<int64_t> GetInt(const Json& object, std::string_view key, int64_t fallback, std::string_view what) {
  const Json* value = Find(object, key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_number_integer()) return WrongType(what, key, "an integer", *value);
  if (!IsInt64(*value)) return WrongType(what, key, "a 64-bit integer", *value);
  return value->get<int64_t>();
}

Result<double> GetDouble(const Json& object, std::string_view key, double fallback, std::string_view what) {
  const Json* value = Find(object, key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_number()) return WrongType(what, key, "a number", *value);
  return value->get<double>();
}

Result<bool> GetBool(const Json& object, std::string_view key, bool fallback, std::string_view what) {
  const Json* value = Find(object, key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_boolean()) return WrongType(what, key, "true or false", *value);
  return value->get<bool>();
}

Result<std::string> GetString(const Json& object, std::string_view key, std::string fallback, std::string_view what) {
  const Json* value = Find(object, key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_string()) return WrongType(what, key, "a string", *value);
  return value->get<std::string>();
}

Result<int64_t> NeedInt(const Json& object, std::string_view key, std::string_view what) {
  const Json* value = Find(object, key);
  if (value == nullptr || value->is_null()) {
    return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected an integer, found nothing; the file is "
                                                 "incomplete",
                                                 what, key));
  }
  return GetInt(object, key, 0, what);
}

std::string DumpJson(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trivet
