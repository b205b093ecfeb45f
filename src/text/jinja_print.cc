// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_text.h"
#include "text/unicode.h"

namespace trivet::text::jinja {
namespace {

// A namespace may contain itself; below this depth it prints as dots.
constexpr int kMaxPrintDepth = 2 * kMaxNesting;

void AppendValue(const Value& value, int depth, std::string* out);

template <class Items, class Each>
void AppendJoined(const Items& items, std::string* out, Each each) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) out->append(", ");
    first = false;
    each(item);
  }
}

void AppendItems(const std::vector<Value>& items, int depth, std::string* out) {
  AppendJoined(items, out, [&](const Value& item) { AppendValue(item, depth + 1, out); });
}

void AppendEntries(const DictObject& dict, int depth, std::string* out) {
  AppendJoined(dict.entries, out, [&](const auto& entry) {
    AppendValue(entry.first, depth + 1, out);
    out->append(": ");
    AppendValue(entry.second, depth + 1, out);
  });
}

void AppendView(const ViewObject& view, int depth, std::string* out) {
  const auto& entries = view.dict.object<DictObject>().entries;
  const bool keys = view.what == ViewObject::What::kKeys, values = view.what == ViewObject::What::kValues;
  out->append(keys ? "dict_keys([" : values ? "dict_values([" : "dict_items([");
  AppendJoined(entries, out, [&](const auto& entry) {
    if (keys || values) return AppendValue(keys ? entry.first : entry.second, depth + 1, out);
    out->append("(");
    AppendValue(entry.first, depth + 1, out);
    out->append(", ");
    AppendValue(entry.second, depth + 1, out);
    out->append(")");
  });
  out->append("])");
}

void AppendNamespace(const Namespace& space, int depth, std::string* out) {
  out->append("<Namespace {");
  AppendJoined(space.attributes, out, [&](const auto& attribute) {
    out->append(QuoteText(attribute.first)).append(": ");
    AppendValue(attribute.second, depth + 1, out);
  });
  out->append("}>");
}

void AppendRange(const SequenceObject& range, std::string* out) {
  out->append(fmt::format("range({}, {}", range.start, range.stop));
  out->append(range.step == 1 ? ")" : fmt::format(", {})", range.step));
}

void AppendTuple(const std::vector<Value>& items, int depth, std::string* out) {
  out->append("(");
  AppendItems(items, depth, out);
  out->append(items.size() == 1 ? ",)" : ")");
}

void AppendValue(const Value& value, int depth, std::string* out) {
  if (depth > kMaxPrintDepth || std::ssize(*out) > 2 * kMaxWeight) {
    out->append("...");
    return;
  }
  switch (value.kind()) {
    case Kind::kUndefined:
      out->append("Undefined");
      break;
    case Kind::kNone:
      out->append("None");
      break;
    case Kind::kBool:
      out->append(value.integer() != 0 ? "True" : "False");
      break;
    case Kind::kInt:
      out->append(std::to_string(value.integer()));
      break;
    case Kind::kFloat:
      out->append(FloatText(value.number()));
      break;
    case Kind::kString:
      out->append(value.IsMarkup() ? "Markup(" + QuoteText(value.text()) + ")" : QuoteText(value.text()));
      break;
    case Kind::kList:
      out->append("[");
      AppendItems(value.items(), depth, out);
      out->append("]");
      break;
    case Kind::kTuple:
      AppendTuple(value.items(), depth, out);
      break;
    case Kind::kRange:
      AppendRange(value.object<SequenceObject>(), out);
      break;
    case Kind::kDict:
      out->append("{");
      AppendEntries(value.object<DictObject>(), depth, out);
      out->append("}");
      break;
    case Kind::kView:
      AppendView(value.object<ViewObject>(), depth, out);
      break;
    case Kind::kNamespace:
      AppendNamespace(*value.space(), depth, out);
      break;
    default:
      out->append(fmt::format("<{}>", TypeName(value)));
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonOptions& options) : options_(options) {}

  Status Write(const Value& value, int depth) {
    if (std::ssize(out_) > kMaxWeight) {
      return Invalid(fmt::format("tojson: expected a text of at most {} bytes, found more; shorten it", kMaxWeight));
    }
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return {};
      case Kind::kBool:
        out_ += value.integer() != 0 ? "true" : "false";
        return {};
      case Kind::kInt:
        out_ += std::to_string(value.integer());
        return {};
      case Kind::kFloat:
        out_ += JsonFloat(value.number());
        return {};
      case Kind::kString:
        WriteString(value.text());
        return {};
      case Kind::kList:
      case Kind::kTuple:
        return WriteArray(value.items(), depth);
      case Kind::kDict:
        return WriteObject(value.object<DictObject>(), depth);
      default:
        return Invalid(fmt::format("tojson: expected a value that JSON has, found a value of type {}; convert it first",
                                   TypeName(value)));
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  static std::string JsonFloat(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  void WriteString(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = CodePointAt(text, at);
      WriteCharacter(point.value, text.substr(at, point.length));
      at += point.length;
    }
    out_ += '"';
  }

  void WriteCharacter(char32_t value, std::string_view bytes) {
    switch (value) {
      case '"':
        out_ += "\\\"";
        return;
      case '\\':
        out_ += "\\\\";
        return;
      case '\n':
        out_ += "\\n";
        return;
      case '\r':
        out_ += "\\r";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\b':
        out_ += "\\b";
        return;
      case '\f':
        out_ += "\\f";
        return;
      default:
        break;
    }
    const auto number = static_cast<uint32_t>(value);
    if (number < 0x20 || (options_.ensure_ascii && number > 0x7e && number < 0x10000)) {
      out_ += number == 0x7f ? "\x7f" : fmt::format("\\u{:04x}", number);
    } else if (options_.ensure_ascii && number >= 0x10000) {
      const uint32_t rest = number - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    } else {
      out_ += bytes;
    }
  }

  void NewLine(int depth) {
    if (!options_.indent.has_value()) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *options_.indent;
  }

  Status WriteArray(const std::vector<Value>& items, int depth) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      NewLine(depth + 1);
      TRY(Write(items[i], depth + 1));
    }
    if (!items.empty()) NewLine(depth);
    out_ += ']';
    return {};
  }

  Status WriteObject(const DictObject& dict, int depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (options_.sort_keys) TRY(SortKeys(dict, &entries));
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      NewLine(depth + 1);
      TRY(WriteKey(entries[i]->first));
      out_ += options_.key_separator;
      TRY(Write(entries[i]->second, depth + 1));
    }
    if (!entries.empty()) NewLine(depth);
    out_ += '}';
    return {};
  }

  static Status SortKeys(const DictObject& dict, std::vector<const std::pair<Value, Value>*>* entries) {
    entries->clear();
    for (const uint32_t entry : dict.order) {
      if (!entries->empty()) {
        const Result<bool> ordered = Less(entries->back()->first, dict.entries[entry].first);
        if (!ordered.ok()) return ordered.error();
      }
      entries->push_back(&dict.entries[entry]);
    }
    return {};
  }

  Status WriteKey(const Value& key) {
    if (key.Is(Kind::kString)) {
      WriteString(key.text());
      return {};
    }
    if (!key.IsNumber() && !key.Is(Kind::kNone)) {
      return Invalid(
          fmt::format("tojson: expected keys that are strings, numbers or none, found one of type {}; use "
                      "strings",
                      TypeName(key)));
    }
    out_ += '"';
    TRY(Write(key, 0));
    out_ += '"';
    return {};
  }

  const JsonOptions& options_;
  std::string out_;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  CHECK(error == std::errc());
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const std::string_view sign = text[0] == '-' ? "-" : "";
  std::string digits;
  for (const char c : text.substr(sign.size(), e - sign.size())) {
    if (c != '.') digits += c;
  }
  int exponent = 0;
  const std::string_view exponent_text = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("{}0.{}{}", sign, std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return fmt::format("{}{}{}.0", sign, digits, std::string(whole - digits.size(), '0'));
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), digits.substr(whole));
}

std::string QuoteText(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    const auto number = static_cast<uint32_t>(point.value);
    if (number == '\\' || number == static_cast<unsigned char>(quote)) {
      out += '\\';
      out += static_cast<char>(number);
    } else if (number == '\n' || number == '\r' || number == '\t') {
      out += number == '\n' ? "\\n" : number == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(point.value)) {
      out += text.substr(at, point.length);
    } else {
      out += number < 0x100     ? fmt::format("\\x{:02x}", number)
             : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                : fmt::format("\\U{:08x}", number);
    }
    at += point.length;
  }
  return out + quote;
}

std::string ToText(const Value& value) {
  if (value.Is(Kind::kString)) return value.text();
  if (value.IsUndefined()) return "";
  return Represent(value);
}

std::string Represent(const Value& value) {
  std::string out;
  AppendValue(value, 0, &out);
  return out;
}

Result<std::string> ToJson(const Value& value, const JsonOptions& options) {
  JsonWriter writer(options);
  TRY(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace trivet::text::jinja
