// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <utility>

#include "text/component.h"

namespace trivet::text {
namespace {

std::string_view Stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const CodePoint first = CodePointAt(text, 0);
    if (!IsWhiteSpace(first.value)) break;
    text.remove_prefix(first.length);
  }
  while (right && !text.empty()) {
    const CodePoint last = CodePointBefore(text, text.size());
    if (!IsWhiteSpace(last.value)) break;
    text.remove_suffix(last.length);
  }
  return text;
}

std::string Lowercase(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    AppendLowercase(point.value, &out);
    at += point.length;
  }
  return out;
}

std::string WithoutMarks(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    if (!IsMark(point.value)) out += text.substr(at, point.length);
    at += point.length;
  }
  return out;
}

std::optional<NormalForm> FormOfType(std::string_view type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

}  // namespace

Result<std::string> ReplaceMatches(const Regex& pattern, std::string_view text, std::string_view content) {
  TRY_ASSIGN(const std::vector<Span> spans, pattern.Split(text));
  std::string out;
  for (const Span& span : spans) out += span.match ? content : text.substr(span.begin, span.end - span.begin);
  return out;
}

Result<Normalizer> Normalizer::FromJson(const Json& json, std::string_view what) {
  const std::string name = std::string(what) + ": normalizer";
  TRY_ASSIGN(const std::vector<Component> components, ListComponents(json, "normalizers", name));
  Normalizer normalizer;
  for (const Component& component : components) {
    TRY_ASSIGN(Step step, ReadStep(*component.json, component.type, name));
    normalizer.steps_.push_back(std::move(step));
  }
  return normalizer;
}

Result<Normalizer::Step> Normalizer::ReadStep(const Json& json, std::string_view type, std::string_view what) {
  Step step;
  if (const std::optional<NormalForm> form = FormOfType(type); form.has_value()) {
    step.form = *form;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    TRY_ASSIGN(step.left, GetBool(json, "strip_left", true, what));
    TRY_ASSIGN(step.right, GetBool(json, "strip_right", true, what));
  } else if (type == "StripAccents") {
    step.kind = Kind::kStripAccents;
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    TRY_ASSIGN(Regex pattern, NeedPattern(json, what));
    step.pattern = std::move(pattern);
    TRY_ASSIGN(step.content, NeedString(json, "content", what));
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    TRY_ASSIGN(step.content, NeedString(json, "prepend", what));
  } else if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else {
    return UnknownComponent(type, what);
  }
  return step;
}

Result<std::string> Normalizer::ApplyStep(const Step& step, std::string_view text) {
  std::string out;
  switch (step.kind) {
    case Kind::kForm:
      return Normalize(text, step.form);
    case Kind::kLowercase:
      return Lowercase(text);
    case Kind::kStrip:
      return std::string(Stripped(text, step.left, step.right));
    case Kind::kStripAccents:
      return WithoutMarks(text);
    case Kind::kReplace:
      return ReplaceMatches(*step.pattern, text, step.content);
    case Kind::kPrepend:
      return text.empty() ? std::string() : step.content + std::string(text);
    case Kind::kByteLevel:
      AppendByteLevel(text, &out);
      return out;
  }
  return out;
}

Result<std::string> Normalizer::Apply(std::string_view text) const {
  std::string current(text);
  for (const Step& step : steps_) {
    TRY_ASSIGN(current, ApplyStep(step, current));
  }
  return current;
}

}  // namespace trivet::text
