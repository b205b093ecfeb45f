// SPDX-License-Identifier: Apache-2.0
#include "model/step_view.h"

#include <cmath>

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

}  // namespace

StepView StageStep(const Runtime& runtime, const StepTokens& step) {
  Staging staging;
  const size_t ids = staging.Add(step.tokens), spans = staging.Add(step.spans), pages = staging.Add(step.pages);
  const size_t rows = staging.Add(step.logits_rows);
  std::vector<size_t> angles;
  for (const plan::RopeTable& table : runtime.geometry.ropes) {
    angles.push_back(staging.Add(std::span<const float>(Angles(table, step))));
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
  runtime.device.Upload(there, staging.data(), staging.bytes());
  return view;
}

int64_t StagedWords(const plan::Geometry& geometry) {
  int64_t words = 1 + 1 + static_cast<int64_t>(sizeof(kernels::TokenSpan)) / 4;  // id, logits row, at most a span
  for (const plan::RopeTable& rope : geometry.ropes) words += 2 * static_cast<int64_t>(rope.frequencies.size());
  return words;
}

}  // namespace trivet::model
