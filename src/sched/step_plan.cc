// SPDX-License-Identifier: Apache-2.0
#include "sched/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "base/check.h"

namespace trivet::sched {
namespace {

// The bytes are the memory of the arrays: all ranks of a run are little-endian and Span has no padding bytes.
static_assert(std::endian::native == std::endian::little);
static_assert(std::has_unique_object_representations_v<Span> && std::is_trivially_copyable_v<Span>);
static_assert(std::has_unique_object_representations_v<StateCopy> && std::is_trivially_copyable_v<StateCopy>);

constexpr uint64_t kMagic = 0x34'6e'61'6c'70'76'72'74;  // "trvplan4"; a change of Span or Header changes the digit

struct Header {
  uint64_t magic = kMagic;
  int64_t step = 0;
  int64_t tokens = 0;
  int64_t spans = 0;
  int64_t pages = 0;
  int64_t logits_rows = 0;
  int64_t restores = 0;
  int64_t saves = 0;
  int64_t drawn = 0;
};

template <class T>
void Append(const T* values, size_t count, std::vector<std::byte>* bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(values);
  bytes->insert(bytes->end(), begin, begin + count * sizeof(T));
}

template <class T>
std::vector<T> Take(int64_t count, std::span<const std::byte>* bytes) {
  std::vector<T> values(static_cast<size_t>(count));
  const size_t size = values.size() * sizeof(T);
  if (size > 0) std::memcpy(values.data(), bytes->data(), size);
  *bytes = bytes->subspan(size);
  return values;
}

Error Malformed(std::string_view what, int64_t expected, int64_t found) {
  return MakeError(Code::kInvalid, fmt::format("step plan: expected {} {}, found {}; all ranks must run the same build",
                                               what, expected, found));
}

// Spans must tile tokens, pages and logits rows in order, without gap or overlap.
Status CheckSpans(const StepPlan& plan) {
  int64_t token = 0, page = 0, row = 0;
  size_t drawn = 0;
  for (const Span& span : plan.spans) {
    if (span.count < 1) return Malformed("a span of at least tokens", 1, span.count);
    if (span.start < 0) return Malformed("a span to start at or after", 0, span.start);
    if (span.state_slot < 0) return Malformed("a state slot of at least", 0, span.state_slot);
    if (span.logits_count < 0 || span.logits_count > span.count) {
      return Malformed("logits rows of a span up to its tokens", span.count, span.logits_count);
    }
    const int64_t pages = (int64_t{span.start} + span.count + kPageTokens - 1) / kPageTokens;
    if (span.page_count != pages) return Malformed("pages of a span", pages, span.page_count);
    if (span.token_begin != token) return Malformed("first token of a span", token, span.token_begin);
    if (span.page_begin != page) return Malformed("first page of a span", page, span.page_begin);
    if (span.logits_begin != row) return Malformed("first logits row of a span", row, span.logits_begin);
    token += span.count;
    page += span.page_count;
    row += span.logits_count;
    if (drawn == plan.drawn.size() || plan.drawn[drawn] != token - 1) continue;
    if (span.logits_count > 0) {
      return Malformed("logits rows of a span whose token is drawn", 0, span.logits_count);
    }
    ++drawn;
  }
  if (drawn < plan.drawn.size()) return Malformed("a span to end with token", plan.drawn[drawn], token - 1);
  if (token != static_cast<int64_t>(plan.tokens.size())) {
    return Malformed("tokens of all spans", token, static_cast<int64_t>(plan.tokens.size()));
  }
  if (page != static_cast<int64_t>(plan.pages.size())) {
    return Malformed("pages of all spans", page, static_cast<int64_t>(plan.pages.size()));
  }
  if (row != plan.logits_rows) return Malformed("logits rows of all spans", row, plan.logits_rows);
  for (const int32_t id : plan.pages) {
    if (id < 0) return Malformed("a page id of at least", 0, id);
  }
  for (const auto* copies : {&plan.restores, &plan.saves}) {
    for (const StateCopy& copy : *copies) {
      if (std::min(copy.from, copy.to) < 0)
        return Malformed("a state slot of at least", 0, std::min(copy.from, copy.to));
    }
  }
  return {};
}

}  // namespace

std::optional<size_t> StepPlan::DrawnOf(const Span& span) const {
  const int32_t last = span.token_begin + span.count - 1;
  const auto found = std::lower_bound(drawn.begin(), drawn.end(), last);
  if (found == drawn.end() || *found != last) return std::nullopt;
  return static_cast<size_t>(found - drawn.begin());
}

std::vector<std::byte> StepPlan::Serialize() const {
  CHECK(rules.size() == drawn.size());
  Header header;
  header.step = step;
  header.tokens = static_cast<int64_t>(tokens.size());
  header.spans = static_cast<int64_t>(spans.size());
  header.pages = static_cast<int64_t>(pages.size());
  header.logits_rows = logits_rows;
  header.restores = static_cast<int64_t>(restores.size());
  header.saves = static_cast<int64_t>(saves.size());
  header.drawn = static_cast<int64_t>(drawn.size());
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof header + tokens.size() * sizeof(TokenId) + spans.size() * sizeof(Span) +
                (pages.size() + drawn.size()) * sizeof(int32_t) + rules.size() * sizeof(DrawRule) +
                (restores.size() + saves.size()) * sizeof(StateCopy));
  Append(&header, 1, &bytes);
  Append(spans.data(), spans.size(), &bytes);
  Append(tokens.data(), tokens.size(), &bytes);
  Append(pages.data(), pages.size(), &bytes);
  Append(restores.data(), restores.size(), &bytes);
  Append(saves.data(), saves.size(), &bytes);
  Append(drawn.data(), drawn.size(), &bytes);
  Append(rules.data(), rules.size(), &bytes);
  return bytes;
}

Result<StepPlan> StepPlan::Deserialize(std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (bytes.size() < sizeof(Header)) return Malformed("at least bytes", sizeof(Header), size);
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes = bytes.subspan(sizeof header);
  if (header.magic != kMagic) {
    return Malformed("magic", static_cast<int64_t>(kMagic), static_cast<int64_t>(header.magic));
  }
  // Each count is bounded by the bytes that are there before it is multiplied or allocated.
  const int64_t most = std::min<int64_t>(size, std::numeric_limits<int32_t>::max());
  for (const int64_t count :
       {header.tokens, header.spans, header.pages, header.logits_rows, header.restores, header.saves, header.drawn}) {
    if (count < 0 || count > most) return Malformed("a count of at most", most, count);
  }
  const int64_t expected = static_cast<int64_t>(sizeof header) + header.spans * static_cast<int64_t>(sizeof(Span)) +
                           header.tokens * static_cast<int64_t>(sizeof(TokenId)) +
                           (header.pages + header.drawn) * static_cast<int64_t>(sizeof(int32_t)) +
                           header.drawn * static_cast<int64_t>(sizeof(DrawRule)) +
                           (header.restores + header.saves) * static_cast<int64_t>(sizeof(StateCopy));
  if (expected != size) return Malformed("bytes", expected, size);
  StepPlan plan;
  plan.step = header.step;
  plan.spans = Take<Span>(header.spans, &bytes);
  plan.tokens = Take<TokenId>(header.tokens, &bytes);
  plan.pages = Take<int32_t>(header.pages, &bytes);
  plan.logits_rows = static_cast<int32_t>(header.logits_rows);
  plan.restores = Take<StateCopy>(header.restores, &bytes);
  plan.saves = Take<StateCopy>(header.saves, &bytes);
  plan.drawn = Take<int32_t>(header.drawn, &bytes);
  plan.rules = Take<DrawRule>(header.drawn, &bytes);
  TRY(CheckSpans(plan));
  return plan;
}

}  // namespace trivet::sched
