// SPDX-License-Identifier: Apache-2.0
#include "text/decoder.h"

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "text/component.h"
#include "text/unicode.h"

namespace trivet::text {
namespace {

std::string ReplaceAll(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  size_t from = 0;
  for (size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, from)) {
    out += text.substr(from, at - from);
    out += content;
    from = at + pattern.size();
  }
  out += text.substr(from);
  return out;
}

// The bytes of a token written in the byte-level alphabet; a token with any other character stands for itself.
std::string FromByteLevel(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const CodePoint point = CodePointAt(token, at);
    const std::optional<uint8_t> byte = ByteLevelByte(point.value);
    if (!byte.has_value()) return std::string(token);
    bytes.push_back(static_cast<char>(*byte));
    at += point.length;
  }
  return bytes;
}

// The byte of a token "<0xNN>".
std::optional<uint8_t> FallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    byte = byte * 16 + digit;
  }
  return static_cast<uint8_t>(byte);
}

// Length of a character at the end of `bytes` that is cut short and may yet become valid.
size_t CutCharacter(std::string_view bytes) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  for (size_t length = 1; length <= std::min<size_t>(3, bytes.size()); ++length) {
    const std::string_view tail = bytes.substr(bytes.size() - length);
    const auto lead = static_cast<unsigned char>(tail[0]);
    if ((lead & 0xc0) == 0x80) continue;
    const size_t need = lead < 0xc2 || lead > 0xf4 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return need > length && RepairUtf8(tail) == kReplacement ? length : 0;
  }
  return 0;
}

}  // namespace

Result<Decoder> Decoder::FromJson(const Json& json, std::string_view what) {
  const std::string name = std::string(what) + ": decoder";
  TRY_ASSIGN(const std::vector<Component> components, ListComponents(json, "decoders", name));
  Decoder decoder;
  for (const Component& component : components) {
    TRY_ASSIGN(Step step, ReadStep(*component.json, component.type, name));
    decoder.steps_.push_back(std::move(step));
  }
  if (json.is_null()) {
    Step join;
    join.kind = Kind::kJoin;
    join.takes_fragments = true;
    decoder.steps_.push_back(std::move(join));
  }
  return decoder;
}

Result<Decoder::Step> Decoder::ReadStep(const Json& json, std::string_view type, std::string_view what) {
  Step step;
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    const Json* pattern = Find(json, "pattern");
    if (pattern != nullptr && Find(*pattern, "Regex") != nullptr) {
      return UnknownComponent("Replace with a regular expression", what);
    }
    TRY_ASSIGN(step.pattern, NeedString(pattern == nullptr ? json : *pattern, "String", what));
    TRY_ASSIGN(step.content, NeedString(json, "content", what));
    if (step.pattern.empty()) return UnknownComponent("Replace of an empty text", what);
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
    step.takes_fragments = true;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.takes_fragments = true;
    TRY_ASSIGN(const char32_t content, GetCharacter(json, "content", 0, what));
    AppendUtf8(content, &step.pattern);
    TRY_ASSIGN(step.start, GetInt(json, "start", 0, what));
    TRY_ASSIGN(step.stop, GetInt(json, "stop", 0, what));
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.takes_fragments = true;
    TRY_ASSIGN(const char32_t replacement, GetCharacter(json, "replacement", U'\u2581', what));
    AppendUtf8(replacement, &step.pattern);
    step.content = " ";
    TRY_ASSIGN(const PrependScheme scheme, GetPrependScheme(json, what));
    step.drop_in_first = scheme != PrependScheme::kNever;
  } else {
    return UnknownComponent(type, what);
  }
  return step;
}

std::string Decoder::Bytes(std::string_view token) const {
  std::string text(token);
  bool whole_tokens = true;  // until the tokens become one text, of which only the neighbours know the ends
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kByteLevel:
        return FromByteLevel(text);
      case Kind::kByteFallback:
        if (const std::optional<uint8_t> byte = FallbackByte(text); byte.has_value() && whole_tokens) {
          return std::string(1, static_cast<char>(*byte));
        }
        break;
      case Kind::kReplace:
      case Kind::kMetaspace:
        text = ReplaceAll(text, step.pattern, step.content);
        break;
      case Kind::kFuse:
        whole_tokens = false;
        break;
      case Kind::kStrip:
        for (int64_t i = 0; whole_tokens && i < step.start && text.starts_with(step.pattern); ++i) {
          text.erase(0, step.pattern.size());
        }
        for (int64_t i = 0; whole_tokens && i < step.stop && text.ends_with(step.pattern); ++i) {
          text.erase(text.size() - step.pattern.size());
        }
        break;
      case Kind::kJoin:
        break;
    }
  }
  return text;
}

void Decoder::Stream::Push(std::string_view token, std::string* out) { Feed(0, token, true, out); }

void Decoder::Stream::Flush(std::string* out) {
  for (size_t step = 0; step < states_.size(); ++step) {
    switch (decoder_->steps_[step].kind) {
      case Kind::kByteLevel:
        Feed(step + 1, RepairUtf8(std::exchange(states_[step].bytes, {})), true, out);
        break;
      case Kind::kByteFallback:
        ReleaseByteRun(step, out);
        break;
      case Kind::kFuse:
        Feed(step + 1, {}, true, out);
        break;
      default:
        break;
    }
  }
  states_.assign(states_.size(), State{});
}

void Decoder::Stream::Feed(size_t step, std::string_view fragment, bool last, std::string* out) {
  if (step == states_.size()) {
    *out += fragment;
    return;
  }
  const Step& rule = decoder_->steps_[step];
  State& state = states_[step];
  std::string whole;
  if (!rule.takes_fragments) {
    if (!last || !state.held.empty()) state.held += fragment;
    if (!last) return;
    whole = std::exchange(state.held, {});
    if (!whole.empty()) fragment = whole;
  }
  switch (rule.kind) {
    case Kind::kByteLevel:
      FeedBytes(step, fragment, out);
      return;
    case Kind::kByteFallback:
      FeedByteFallback(step, fragment, out);
      return;
    case Kind::kStrip:
      FeedStrip(step, fragment, last, out);
      return;
    case Kind::kFuse:
      Feed(step + 1, fragment, false, out);
      return;
    case Kind::kReplace:
      Feed(step + 1, ReplaceAll(fragment, rule.pattern, rule.content), true, out);
      return;
    case Kind::kMetaspace:
      whole = ReplaceAll(fragment, rule.pattern, state.token == 0 && rule.drop_in_first ? "" : rule.content);
      break;
    case Kind::kJoin:
      if (state.token > 0) whole = " ";
      whole += fragment;
      break;
  }
  if (last) ++state.token;
  Feed(step + 1, whole, last, out);
}

void Decoder::Stream::FeedBytes(size_t step, std::string_view token, std::string* out) {
  std::string& bytes = states_[step].bytes;
  bytes += FromByteLevel(token);
  const size_t held = CutCharacter(bytes);
  const std::string text = RepairUtf8(std::string_view(bytes).substr(0, bytes.size() - held));
  bytes.erase(0, bytes.size() - held);
  if (!text.empty()) Feed(step + 1, text, false, out);
}

void Decoder::Stream::FeedByteFallback(size_t step, std::string_view token, std::string* out) {
  if (const std::optional<uint8_t> byte = FallbackByte(token); byte.has_value()) {
    states_[step].bytes.push_back(static_cast<char>(*byte));
    return;
  }
  ReleaseByteRun(step, out);
  Feed(step + 1, token, true, out);
}

// A run of byte tokens is one text when it is valid as a whole; otherwise every byte of it is one U+FFFD. So a run has
// to be held until it ends.
void Decoder::Stream::ReleaseByteRun(size_t step, std::string* out) {
  const std::string run = std::exchange(states_[step].bytes, {});
  if (run.empty()) return;
  if (IsUtf8(run)) {
    Feed(step + 1, run, true, out);
  } else {
    for (size_t i = 0; i < run.size(); ++i) Feed(step + 1, "\xEF\xBF\xBD", true, out);
  }
}

void Decoder::Stream::FeedStrip(size_t step, std::string_view fragment, bool last, std::string* out) {
  const Step& rule = decoder_->steps_[step];
  State& state = states_[step];
  const size_t unit = rule.pattern.size();
  while (!state.started && !fragment.empty()) {
    state.started = state.removed >= rule.start || !fragment.starts_with(rule.pattern);
    if (state.started) break;
    fragment.remove_prefix(unit);
    ++state.removed;
  }
  // As many of the character as may be the last ones are held back.
  std::string text = std::exchange(state.held, {});
  text += fragment;
  size_t kept = text.size();
  for (int64_t i = 0; i < rule.stop && std::string_view(text).substr(0, kept).ends_with(rule.pattern); ++i) {
    kept -= unit;
  }
  if (!last) state.held = text.substr(kept);
  text.resize(kept);
  if (last) state = State{};
  if (last || !text.empty()) Feed(step + 1, text, last, out);
}

}  // namespace trivet::text
