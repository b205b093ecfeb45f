// SPDX-License-Identifier: Apache-2.0
#include "model/step_view.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/staging.h"
#include "model/layers.h"

namespace trivet::model {
namespace {

// Cosines of all tokens, then their sines: position * frequency in float32; both in double and rounded once, then
// multiplied by the table's scale.
std::vector<float> Angles(const plan::RopeTable& table, const StepTokens& step) {
  const size_t half = table.frequencies.size(), count = step.tokens.size() * half;
  std::vector<float> angles(2 * count);
  for (const kernels::TokenSpan& span : step.spans) {
    for (int32_t j = 0; j < span.count; ++j) {
      for (size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(static_cast<float>(span.start + j) * table.frequencies[i]);
        const size_t at = static_cast<size_t>(span.token_begin + j) * half + i;
        angles[at] = static_cast<float>(std::cos(angle)) * table.scale;
        angles[count + at] = static_cast<float>(std::sin(angle)) * table.scale;
      }
    }
  }
  return angles;
}

// The rows of the head: those whose logits are handed out stand first, so that they are one block.
struct HeadRows {
  std::vector<int32_t> tokens, argmax;  // as in StepView
  std::vector<DrawRule> rules;          // these, too
  int64_t drawn = 0;
};

HeadRows HeadRowsOf(const StepTokens& step, bool keeps_all) {
  HeadRows head;
  head.tokens.assign(step.logits_rows.begin(), step.logits_rows.end());
  head.tokens.insert(head.tokens.end(), step.drawn_rows.begin(), step.drawn_rows.end());
  const int64_t rows = keeps_all ? static_cast<int64_t>(head.tokens.size()) : comm::AllRows(step.head_keepers);
  head.drawn = static_cast<int64_t>(step.rules.size());
  head.argmax.assign(static_cast<size_t>(rows - head.drawn), -1);
  for (int64_t row = rows - head.drawn; row < rows; ++row) head.argmax.push_back(static_cast<int32_t>(row));
  head.rules.resize(head.argmax.size() - step.rules.size());
  head.rules.insert(head.rules.end(), step.rules.begin(), step.rules.end());
  return head;
}

// Page ids of all spans, one behind the other, which spans point into once the list has its place.
struct PageList {
  std::vector<int32_t> pages;
  std::vector<size_t> own, whole;  // where those of every span begin
};

// The pages that the scheduler handed out.
PageList Paged(const StepTokens& step) {
  PageList list{{step.pages.begin(), step.pages.end()}, {}, {}};
  const auto begin = [&](const kernels::TokenSpan& span) {
    return span.pages == nullptr ? 0 : static_cast<size_t>(span.pages - step.pages.data());
  };
  for (const kernels::TokenSpan& span : step.spans) list.own.push_back(begin(span));
  for (const kernels::TokenSpan& span : step.whole.spans) list.whole.push_back(begin(span));
  return list;
}

// The pages of the slots' rings.
PageList Ring(const StepTokens& step, int64_t ring) {
  PageList list;
  std::map<int32_t, size_t> begins;  // by slot
  for (const kernels::TokenSpan& span : step.whole.spans) {
    list.whole.push_back(list.pages.size());
    begins[span.state_slot] = list.pages.size();
    for (int64_t page = 0; page * cache::kPageTokens < span.start + span.count; ++page) {
      list.pages.push_back(static_cast<int32_t>(span.state_slot * ring + page % ring));
    }
  }
  for (const kernels::TokenSpan& span : step.spans) list.own.push_back(begins.at(span.state_slot));
  return list;
}

// Spans, and where they are staged.
struct StagedSpans {
  std::span<const kernels::TokenSpan> spans;
  size_t at = 0;
};

StagedSpans Stage(std::span<const kernels::TokenSpan> spans, Staging* staging) { return {spans, staging->Add(spans)}; }

// Lets staged spans point to their pages.
void Point(const StagedSpans& staged, const std::vector<size_t>& begins, const int32_t* pages, Staging* staging) {
  auto* spans = reinterpret_cast<kernels::TokenSpan*>(staging->data() + staged.at);
  for (size_t i = 0; i < staged.spans.size(); ++i) spans[i].pages = pages + begins[i];
}

// What the host knows of a step: sizes, and whose rows are whose.
StepView SizesOf(const Runtime& runtime, const StepTokens& step, const HeadRows& head) {
  StepView view;
  view.tokens = static_cast<int64_t>(step.tokens.size());
  view.kept_rows = static_cast<int64_t>(head.tokens.size());
  view.kept = runtime.comm.HasAll(step.keepers) ? view.tokens : comm::RowsOf(step.keepers, runtime.comm.rank());
  view.rows = static_cast<int64_t>(head.argmax.size());
  view.drawn = head.drawn;
  view.drawn_rules = step.rules;
  view.ruled = std::count_if(step.rules.begin(), step.rules.end(), [](const DrawRule& r) { return !r.TakesBest(); });
  view.keepers = step.keepers;
  view.head_keepers = step.head_keepers;
  for (const kernels::TokenSpan& span : step.spans) {
    view.key_visits += int64_t{span.count} * (span.start + span.count);
  }
  view.whole_tokens = step.whole.tokens();
  view.whole_rows = step.whole.head_rows;
  view.runs = step.whole.runs;
  return view;
}

}  // namespace

StepView StageStep(const Runtime& runtime, const StepTokens& step) {
  Staging staging;
  const HeadRows head = HeadRowsOf(step, runtime.comm.HasAll(step.keepers));
  const size_t ids = staging.Add(step.tokens);
  const size_t rows = staging.Add(std::span<const int32_t>(head.tokens));
  const size_t argmax = staging.Add(std::span<const int32_t>(head.argmax));
  const size_t rules = staging.Add(std::span<const DrawRule>(head.rules));
  std::vector<size_t> angles;
  for (const plan::RopeTable& table : runtime.geometry.ropes) {
    angles.push_back(staging.Add(std::span<const float>(Angles(table, step))));
  }
  const std::vector<int64_t> rings = runtime.caches.rings();
  std::vector<PageList> lists{Paged(step)};
  for (const int64_t ring : rings) lists.push_back(Ring(step, ring));
  std::vector<StagedSpans> own, whole;
  for (size_t i = 0; i < lists.size(); ++i) {
    own.push_back(Stage(step.spans, &staging));
    whole.push_back(Stage(step.whole.spans, &staging));
  }
  // Pages stand last, since their number grows with a sequence: steps of one shape have the rest at the same places.
  std::byte* there = runtime.workspace.Take<std::byte>(runtime.tables.staged_bytes).data();
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto* pages = reinterpret_cast<const int32_t*>(there + staging.Add(std::span<const int32_t>(lists[i].pages)));
    Point(own[i], lists[i].own, pages, &staging);
    Point(whole[i], lists[i].whole, pages, &staging);
  }
  CHECK(staging.bytes() <= runtime.tables.staged_bytes);
  runtime.device.Upload(there, staging.data(), staging.bytes());

  const auto lists_at = [&](const std::vector<StagedSpans>& staged) {
    const auto at = [&](size_t i) {
      return std::span(reinterpret_cast<const kernels::TokenSpan*>(there + staged[i].at), staged[i].spans.size());
    };
    SpanLists all{at(0), {}};
    for (size_t i = 0; i < rings.size(); ++i) all.rings.push_back({rings[i], at(i + 1)});
    return all;
  };
  StepView view = SizesOf(runtime, step, head);
  view.ids = reinterpret_cast<const TokenId*>(there + ids);
  view.own = lists_at(own);
  view.head_rows = reinterpret_cast<const int32_t*>(there + rows);
  view.argmax_rows = reinterpret_cast<const int32_t*>(there + argmax);
  view.rules = reinterpret_cast<const DrawRule*>(there + rules);
  for (size_t i = 0; i < angles.size(); ++i) {
    const auto half = static_cast<int64_t>(runtime.geometry.ropes[i].frequencies.size());
    const auto* cos = reinterpret_cast<const float*>(there + angles[i]);
    view.ropes.push_back({half, cos, cos + view.tokens * half});
  }
  view.whole = lists_at(whole);
  return view;
}

int64_t StagedBytes(const plan::Geometry& geometry, const StepSize& size) {
  constexpr auto kSpan = static_cast<int64_t>(sizeof(kernels::TokenSpan));
  std::set<int64_t> windows{0};  // each has a ring of its own size at most
  for (const plan::LayerGeometry& layer : geometry.layers) windows.insert(layer.window);
  // Of a token: its id, its row of the head, whether a token is drawn from it and how.
  int64_t words = 1 + 2 + static_cast<int64_t>(sizeof(DrawRule)) / 4;
  for (const plan::RopeTable& rope : geometry.ropes) words += 2 * static_cast<int64_t>(rope.frequencies.size());
  // A step has no more spans than tokens, and neither has a rank's share of it.
  const int64_t bytes =
      4 * words * size.tokens + static_cast<int64_t>(windows.size()) * (2 * kSpan * size.tokens + 4 * size.pages);
  return bytes + 64 * (6 + static_cast<int64_t>(geometry.ropes.size() + 3 * windows.size()));  // each array rounded up
}

}  // namespace trivet::model
