// SPDX-License-Identifier: Apache-2.0
#include "grammar/char_set.h"

#include <algorithm>
#include <iterator>

namespace trivet::grammar {
namespace {

constexpr uint32_t kLast = 0x10FFFF, kSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

int LengthOf(uint32_t character) { return character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4; }

std::vector<uint8_t> Encode(uint32_t character) {
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  const int length = LengthOf(character);
  std::vector<uint8_t> bytes(static_cast<size_t>(length));
  for (int i = length - 1; i > 0; --i, character >>= 6) {
    bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(0x80 | (character & 0x3F));
  }
  bytes[0] = static_cast<uint8_t>(kLead[length] | character);
  return bytes;
}

// Cuts [first, last] into ranges whose encodings are a range of bytes at every place.
void Cut(uint32_t first, uint32_t last, std::vector<std::pair<uint32_t, uint32_t>>* out) {
  for (const uint32_t border : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first > border || last <= border) continue;
    Cut(first, border, out);
    return Cut(border + 1, last, out);
  }
  for (int place = 1; place < LengthOf(first); ++place) {
    const uint32_t low = (1u << (6 * place)) - 1;  // what the bytes from this place on hold
    if ((first | low) == (last | low)) continue;
    if ((first & low) != 0) {
      Cut(first, first | low, out);
      return Cut((first | low) + 1, last, out);
    }
    if ((last & low) != low) {
      Cut(first, (last & ~low) - 1, out);
      return Cut(last & ~low, last, out);
    }
  }
  out->emplace_back(first, last);
}

}  // namespace

CharSet CharSet::All() {
  CharSet all;
  all.ranges_ = {{0, kSurrogate - 1}, {kLastSurrogate + 1, kLast}};
  return all;
}

void CharSet::Add(uint32_t first, uint32_t last) {
  if (first < kSurrogate && last > kLastSurrogate) {
    Add(first, kSurrogate - 1);
    return Add(kLastSurrogate + 1, last);
  }
  if (first >= kSurrogate && first <= kLastSurrogate) first = kLastSurrogate + 1;
  if (last >= kSurrogate && last <= kLastSurrogate) last = kSurrogate - 1;
  if (first > last) return;
  ranges_.emplace_back(first, std::min(last, kLast));
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<std::pair<uint32_t, uint32_t>> merged;
  for (const auto& range : ranges_) {
    if (merged.empty() || range.first > merged.back().second + 1) {
      merged.push_back(range);
    } else {
      merged.back().second = std::max(merged.back().second, range.second);
    }
  }
  ranges_ = std::move(merged);
}

void CharSet::Add(const CharSet& other) {
  for (const auto& [first, last] : other.ranges_) Add(first, last);
}

CharSet CharSet::Complement() const {
  CharSet out;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) out.Add(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) out.Add(next, kLast);
  return out;
}

CharSet CharSet::Intersection(const CharSet& other) const {
  CharSet out = Complement();
  out.Add(other.Complement());
  return out.Complement();
}

bool CharSet::Contains(uint32_t character) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const auto& range) { return character >= range.first && character <= range.second; });
}

NodeId Utf8(const CharSet& set, GrammarBuilder* builder) {
  std::vector<std::pair<uint32_t, uint32_t>> parts;
  for (const auto& [first, last] : set.ranges()) Cut(first, last, &parts);
  ByteSet single;
  std::vector<NodeId> choices;
  for (const auto& [first, last] : parts) {
    const std::vector<uint8_t> from = Encode(first), to = Encode(last);
    std::vector<NodeId> bytes;
    for (size_t i = 0; i < from.size(); ++i) {
      ByteSet range;
      for (int byte = from[i]; byte <= to[i]; ++byte) range.set(static_cast<size_t>(byte));
      if (from.size() == 1) single |= range;
      bytes.push_back(builder->Bytes(range));
    }
    if (from.size() > 1) choices.push_back(builder->Sequence(std::move(bytes)));
  }
  if (single.any()) choices.push_back(builder->Bytes(single));
  return builder->Choice(std::move(choices));
}

std::vector<uint32_t> CharactersOf(std::string_view text) {
  std::vector<uint32_t> characters;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t character = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t k = 1; k < length && i + k < text.size(); ++k) {
      character = character << 6 | (static_cast<uint8_t>(text[i + k]) & 0x3F);
    }
    characters.push_back(character);
    i += length;
  }
  return characters;
}

}  // namespace trivet::grammar
