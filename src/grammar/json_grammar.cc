// SPDX-License-Identifier: Apache-2.0
#include "grammar/json_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/json.h"

namespace trivet::grammar {
namespace {

constexpr int32_t kIndent = 40;      // white space after a line break
constexpr int32_t kDigits = 20;      // those of 2^64 - 1
constexpr char kEscaped[] = "\"\\";  // besides control characters

// Characters that stand for themselves in a string.
CharSet Plain() {
  CharSet special(0, 0x1F);
  for (const char* at = kEscaped; *at != '\0'; ++at) special.Add(static_cast<uint8_t>(*at), static_cast<uint8_t>(*at));
  return special.Complement();
}

}  // namespace

NodeId JsonGrammar::OneOf(std::string_view bytes) {
  ByteSet set;
  for (const char byte : bytes) set.set(static_cast<uint8_t>(byte));
  return builder_.Bytes(set);
}

NodeId JsonGrammar::Range(char first, char last) {
  ByteSet set;
  for (int byte = first; byte <= last; ++byte) set.set(static_cast<size_t>(byte));
  return builder_.Bytes(set);
}

NodeId JsonGrammar::Space() {
  const NodeId line = builder_.Sequence({builder_.Literal("\n"), builder_.Repeat(OneOf(" \t"), 0, kIndent)});
  return builder_.Choice({builder_.Empty(), builder_.Literal(" "), line});
}

NodeId JsonGrammar::String(int32_t min, int32_t max) {
  const NodeId hex = OneOf("0123456789abcdefABCDEF");
  const NodeId two = builder_.Repeat(hex, 2, 2), three = builder_.Repeat(hex, 3, 3);
  const NodeId d = OneOf("dD");
  const NodeId unit = builder_.Choice(
      {builder_.Sequence({OneOf("0123456789abcefABCEF"), three}), builder_.Sequence({d, Range('0', '7'), two})});
  const NodeId pair = builder_.Sequence({d, OneOf("89abAB"), two, builder_.Literal("\\u"), d, OneOf("cdefCDEF"), two});
  const NodeId escape =
      builder_.Choice({OneOf("\"\\/bfnrt"), builder_.Sequence({builder_.Literal("u"), builder_.Choice({unit, pair})})});
  const NodeId character =
      builder_.Choice({Utf8(Plain(), &builder_), builder_.Sequence({builder_.Literal("\\"), escape})});
  return Quoted(builder_.Repeat(character, min, max));
}

NodeId JsonGrammar::OtherString(const std::vector<std::string>& names) {
  // A tree of the names: at each of its places, what is no name goes on, or leaves the tree and is free.
  struct Place {
    std::map<uint32_t, size_t> next;
    bool name = false;
  };
  std::vector<Place> places(1);
  for (const std::string& name : names) {
    size_t at = 0;
    for (const uint32_t character : CharactersOf(name)) {
      const auto [found, fresh] = places[at].next.try_emplace(character, places.size());
      at = found->second;
      if (fresh) places.emplace_back();
    }
    places[at].name = true;
  }
  const CharSet plain = Plain();
  const NodeId free = builder_.Repeat(Utf8(plain, &builder_), 0, kNoLimit);
  std::vector<NodeId> others(places.size());
  for (size_t i = places.size(); i-- > 0;) {  // children come after their parents
    CharSet known;
    std::vector<NodeId> choices;
    if (!places[i].name) choices.push_back(builder_.Empty());
    for (const auto& [character, next] : places[i].next) {
      const CharSet one(character, character);
      known.Add(one);
      if (plain.Contains(character)) choices.push_back(builder_.Sequence({Utf8(one, &builder_), others[next]}));
    }
    choices.push_back(builder_.Sequence({Utf8(known.Complement().Intersection(plain), &builder_), free}));
    others[i] = builder_.Choice(std::move(choices));
  }
  return Quoted(others[0]);
}

NodeId JsonGrammar::Character(const CharSet& set) {
  const CharSet plain = Plain();
  std::vector<NodeId> choices = {Utf8(set.Intersection(plain), &builder_)};
  std::vector<std::string> escaped;
  for (uint32_t character = 0; character < 0x80; ++character) {
    if (!set.Contains(character) || plain.Contains(character)) continue;
    const std::string quoted = DumpJson(Json(std::string(1, static_cast<char>(character))));
    escaped.push_back(quoted.substr(1, quoted.size() - 2));
  }
  choices.push_back(builder_.Literals(std::move(escaped)));
  return builder_.Choice(std::move(choices));
}

NodeId JsonGrammar::Quoted(NodeId characters) {
  return builder_.Sequence({builder_.Literal("\""), characters, builder_.Literal("\"")});
}

NodeId JsonGrammar::Number() {
  const NodeId fraction = builder_.Sequence({builder_.Literal("."), Digits(1, kDigits)});
  const NodeId exponent = builder_.Sequence({OneOf("eE"), builder_.Optional(OneOf("+-")), Digits(1, 2)});
  return builder_.Sequence({Integer(), builder_.Optional(fraction), builder_.Optional(exponent)});
}

// Digits of the same length, from `low` to `high`.
NodeId JsonGrammar::Between(std::string_view low, std::string_view high) {
  if (low.empty()) return builder_.Empty();
  const auto count = static_cast<int32_t>(low.size());
  const std::string zeros(low.size() - 1, '0'), nines(low.size() - 1, '9');
  if (low.substr(1) == zeros && high.substr(1) == nines) {
    return builder_.Sequence({Range(low[0], high[0]), Digits(count - 1, count - 1)});
  }
  const auto headed = [&](char digit, std::string_view from, std::string_view to) {
    return builder_.Sequence({Range(digit, digit), Between(from, to)});
  };
  if (low[0] == high[0]) return headed(low[0], low.substr(1), high.substr(1));
  std::vector<NodeId> choices = {headed(low[0], low.substr(1), nines), headed(high[0], zeros, high.substr(1))};
  if (low[0] + 1 < high[0]) {
    choices.push_back(builder_.Sequence(
        {Range(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)), Digits(count - 1, count - 1)}));
  }
  return builder_.Choice(std::move(choices));
}

// Decimal numbers from `low` to `high`, both without leading zeros.
NodeId JsonGrammar::Magnitude(std::string low, std::string high) {
  std::vector<NodeId> choices;
  if (low.size() > high.size() || (low.size() == high.size() && low > high)) return builder_.Nothing();
  for (size_t length = low.size(); length <= high.size(); ++length) {
    // The least and the greatest number of this length.
    const std::string least = length == low.size() ? low : "1" + std::string(length - 1, '0');
    const std::string most = length == high.size() ? high : std::string(length, '9');
    choices.push_back(Between(least, most));
  }
  return builder_.Choice(std::move(choices));
}

NodeId JsonGrammar::Integer(std::optional<int64_t> min, std::optional<int64_t> max) {
  const std::string unlimited(kDigits, '9');
  if (!min && !max) {
    const NodeId digits = builder_.Sequence({Range('1', '9'), Digits(0, kDigits - 1)});
    return builder_.Sequence(
        {builder_.Optional(builder_.Literal("-")), builder_.Choice({builder_.Literal("0"), digits})});
  }
  const auto magnitude = [](int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    return fmt::format("{}", value < 0 ? 0 - bits : bits);
  };
  std::vector<NodeId> choices;
  if (!max || *max >= 0) {
    choices.push_back(Magnitude(min && *min > 0 ? magnitude(*min) : "0", max ? magnitude(*max) : unlimited));
  }
  if (!min || *min < 0) {
    const NodeId digits = Magnitude(max && *max < 0 ? magnitude(*max) : "1", min ? magnitude(*min) : unlimited);
    choices.push_back(builder_.Sequence({builder_.Literal("-"), digits}));
  }
  return builder_.Choice(std::move(choices));
}

NodeId JsonGrammar::Member(std::string_view name, NodeId value) {
  return Member(builder_.Literal(DumpJson(Json(std::string(name)))), value);
}

NodeId JsonGrammar::Member(NodeId key, NodeId value) {
  return builder_.Sequence({key, builder_.Literal(":"), Space(), value});
}

NodeId JsonGrammar::Next(NodeId item) { return builder_.Sequence({builder_.Literal(","), Space(), item}); }

NodeId JsonGrammar::Enclosed(char open, NodeId items, char close) {
  const std::string first(1, open), last(1, close);
  return builder_.Sequence({builder_.Literal(first), Space(), items, Space(), builder_.Literal(last)});
}

NodeId JsonGrammar::AnyValue() {
  if (any_value_) return *any_value_;
  any_value_ = builder_.Rule();
  builder_.Define(*any_value_, builder_.Choice({AnyObject(), AnyArray(), String(), Number(), Boolean(), Null()}));
  return *any_value_;
}

NodeId JsonGrammar::AnyObject() {
  const NodeId member = Member(String(), AnyValue());
  const NodeId members = builder_.Sequence({member, builder_.Repeat(Next(member), 0, kNoLimit)});
  return Enclosed('{', builder_.Optional(members), '}');
}

NodeId JsonGrammar::AnyArray() {
  const NodeId items = builder_.Sequence({AnyValue(), builder_.Repeat(Next(AnyValue()), 0, kNoLimit)});
  return Enclosed('[', builder_.Optional(items), ']');
}

}  // namespace trivet::grammar
