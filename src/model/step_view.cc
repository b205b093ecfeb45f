// SPDX-License-Identifier: Apache-2.0
#include "model/step_view.h"

#include <cmath>
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

// Spans with the begin of their pages in one list of page ids, which becomes a pointer once its place is known.
struct PagedSpans {
  std::vector<kernels::TokenSpan> spans;
  std::vector<int32_t> pages;
  std::vector<size_t> begins;  // [S]
};

// The spans with the pages that the scheduler handed out.
PagedSpans Paged(const StepTokens& step) {
  PagedSpans paged{{step.spans.begin(), step.spans.end()}, {step.pages.begin(), step.pages.end()}, {}};
  for (const kernels::TokenSpan& span : step.spans) {
    paged.begins.push_back(span.pages == nullptr ? 0 : static_cast<size_t>(span.pages - step.pages.data()));
  }
  return paged;
}

// The spans with the pages of their slots' rings.
PagedSpans Ring(const StepTokens& step, int64_t ring) {
  PagedSpans paged{{step.spans.begin(), step.spans.end()}, {}, {}};
  for (const kernels::TokenSpan& span : step.spans) {
    paged.begins.push_back(paged.pages.size());
    for (int64_t page = 0; page * cache::kPageTokens < span.start + span.count; ++page) {
      paged.pages.push_back(static_cast<int32_t>(span.state_slot * ring + page % ring));
    }
  }
  return paged;
}

}  // namespace

StepView StageStep(const Runtime& runtime, const StepTokens& step) {
  Staging staging;
  const size_t ids = staging.Add(step.tokens), rows = staging.Add(step.logits_rows);
  std::vector<size_t> angles;
  for (const plan::RopeTable& table : runtime.geometry.ropes) {
    angles.push_back(staging.Add(std::span<const float>(Angles(table, step))));
  }
  const std::vector<int64_t> rings = runtime.caches.rings();
  std::vector<PagedSpans> paged{Paged(step)};
  for (const int64_t ring : rings) paged.push_back(Ring(step, ring));
  std::vector<size_t> spans;
  for (const PagedSpans& one : paged) spans.push_back(staging.Add(std::span<const kernels::TokenSpan>(one.spans)));
  // Pages stand last, since their number grows with a sequence: steps of one shape have the rest at the same places.
  std::byte* there = runtime.workspace.Take<std::byte>(runtime.tables.staged_bytes).data();
  for (size_t i = 0; i < paged.size(); ++i) {
    const auto* pages = reinterpret_cast<const int32_t*>(there + staging.Add(std::span<const int32_t>(paged[i].pages)));
    auto* staged = reinterpret_cast<kernels::TokenSpan*>(staging.data() + spans[i]);
    for (size_t j = 0; j < step.spans.size(); ++j) staged[j].pages = pages + paged[i].begins[j];
  }
  CHECK(staging.bytes() <= runtime.tables.staged_bytes);
  runtime.device.Upload(there, staging.data(), staging.bytes());

  const auto spans_at = [&](size_t i) {
    return std::span(reinterpret_cast<const kernels::TokenSpan*>(there + spans[i]), step.spans.size());
  };
  StepView view;
  view.tokens = static_cast<int64_t>(step.tokens.size());
  view.rows = static_cast<int64_t>(step.logits_rows.size());
  view.ids = reinterpret_cast<const TokenId*>(there + ids);
  view.spans = spans_at(0);
  view.logits_rows = reinterpret_cast<const int32_t*>(there + rows);
  for (size_t i = 0; i < angles.size(); ++i) {
    const auto half = static_cast<int64_t>(runtime.geometry.ropes[i].frequencies.size());
    const auto* cos = reinterpret_cast<const float*>(there + angles[i]);
    view.ropes.push_back({half, cos, cos + view.tokens * half});
  }
  for (size_t i = 0; i < rings.size(); ++i) view.rings.push_back({rings[i], spans_at(i + 1)});
  for (const kernels::TokenSpan& span : step.spans) {
    view.key_visits += int64_t{span.count} * (span.start + span.count);
  }
  return view;
}

int64_t StagedBytes(const plan::Geometry& geometry, const StepSize& size) {
  constexpr auto kSpan = static_cast<int64_t>(sizeof(kernels::TokenSpan));
  std::set<int64_t> windows{0};  // each has a ring of its own size at most
  for (const plan::LayerGeometry& layer : geometry.layers) windows.insert(layer.window);
  int64_t words = 1 + 1;  // of a token: its id, its row of logits
  for (const plan::RopeTable& rope : geometry.ropes) words += 2 * static_cast<int64_t>(rope.frequencies.size());
  // A step has no more spans than tokens.
  const int64_t bytes =
      4 * words * size.tokens + static_cast<int64_t>(windows.size()) * (kSpan * size.tokens + 4 * size.pages);
  return bytes + 64 * (4 + static_cast<int64_t>(geometry.ropes.size() + 2 * windows.size()));  // each array rounded up
}

}  // namespace trivet::model
