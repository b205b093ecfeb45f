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

// Where a list of spans and their pages stand in a block of bytes.
struct StagedRing {
  int64_t pages = 0;  // of a ring
  size_t spans = 0, page_ids = 0;
};

int64_t PagesOf(const kernels::TokenSpan& span) {
  return (span.start + span.count + cache::kPageTokens - 1) / cache::kPageTokens;
}

// The pages of all spans in the rings of their slots, one behind the other.
std::vector<int32_t> RingPageIds(int64_t ring, std::span<const kernels::TokenSpan> spans) {
  std::vector<int32_t> ids;
  for (const kernels::TokenSpan& span : spans) {
    for (int64_t page = 0; page < PagesOf(span); ++page) {
      ids.push_back(static_cast<int32_t>(span.state_slot * ring + page % ring));
    }
  }
  return ids;
}

}  // namespace

StepView StageStep(const Runtime& runtime, const StepTokens& step) {
  Staging staging;
  const size_t ids = staging.Add(step.tokens), spans = staging.Add(step.spans), pages = staging.Add(step.pages);
  const size_t rows = staging.Add(step.logits_rows);
  std::vector<size_t> angles;
  for (const plan::RopeTable& table : runtime.geometry.ropes) {
    angles.push_back(staging.Add(std::span<const float>(Angles(table, step))));
  }
  std::vector<StagedRing> rings;
  for (const int64_t ring : runtime.caches.rings()) {
    const std::vector<int32_t> ids = RingPageIds(ring, step.spans);
    rings.push_back({ring, staging.Add(step.spans), staging.Add(std::span(ids))});
  }
  std::byte* there = runtime.workspace.Take<std::byte>(staging.bytes()).data();

  StepView view;
  view.tokens = static_cast<int64_t>(step.tokens.size());
  view.rows = static_cast<int64_t>(step.logits_rows.size());
  view.ids = reinterpret_cast<const TokenId*>(there + ids);
  view.spans = {reinterpret_cast<const kernels::TokenSpan*>(there + spans), step.spans.size()};
  view.logits_rows = reinterpret_cast<const int32_t*>(there + rows);
  for (size_t i = 0; i < angles.size(); ++i) {
    const auto half = static_cast<int64_t>(runtime.geometry.ropes[i].frequencies.size());
    const auto* cos = reinterpret_cast<const float*>(there + angles[i]);
    view.ropes.push_back({half, cos, cos + view.tokens * half});
  }
  for (size_t i = 0; i < step.spans.size(); ++i) {
    const int64_t count = step.spans[i].count, start = step.spans[i].start;
    view.key_visits += count * (start + count);
    // Pages stand behind the spans, where the kernels find them.
    auto* span = reinterpret_cast<kernels::TokenSpan*>(staging.data() + spans) + i;
    const int64_t first = span->pages == nullptr ? 0 : span->pages - step.pages.data();
    span->pages = reinterpret_cast<const int32_t*>(there + pages) + first;
  }
  for (const StagedRing& ring : rings) {
    auto* ring_spans = reinterpret_cast<kernels::TokenSpan*>(staging.data() + ring.spans);
    const auto* ids = reinterpret_cast<const int32_t*>(there + ring.page_ids);
    for (size_t i = 0; i < step.spans.size(); ++i) {
      ring_spans[i].pages = ids;
      ids += PagesOf(step.spans[i]);
    }
    const auto* placed = reinterpret_cast<const kernels::TokenSpan*>(there + ring.spans);
    view.rings.push_back({ring.pages, {placed, step.spans.size()}});
  }
  runtime.device.Upload(there, staging.data(), staging.bytes());
  return view;
}

int64_t Windows(const plan::Geometry& geometry) {
  std::set<int64_t> windows;
  for (const plan::LayerGeometry& layer : geometry.layers) {
    if (layer.window > 0) windows.insert(layer.window);
  }
  return static_cast<int64_t>(windows.size());
}

int64_t StagedWords(const plan::Geometry& geometry) {
  // Id, logits row, and at most a span, once more for every ring.
  int64_t words = 1 + 1 + (1 + Windows(geometry)) * static_cast<int64_t>(sizeof(kernels::TokenSpan)) / 4;
  for (const plan::RopeTable& rope : geometry.ropes) words += 2 * static_cast<int64_t>(rope.frequencies.size());
  return words;
}

}  // namespace trivet::model
