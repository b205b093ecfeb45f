// SPDX-License-Identifier: Apache-2.0
// One step as the forward pass is given it, and as layers see it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/draw_rule.h"
#include "base/ids.h"
#include "comm/communicator.h"
#include "kernels/token_span.h"
#include "plan/geometry.h"

namespace trivet::model {

/// The rows of a step of all ranks of a context group.
struct WholeStep {
  std::span<const kernels::TokenSpan> spans;  // [S]
  std::span<const comm::RowRun> runs;         // who computes which, ascending and without gaps
  int64_t head_rows = 0;                      // that the head computes

  int64_t tokens() const { return comm::AllRows(runs); }
};

/// T tokens, this rank's share of a step: views of the step plan, on the host. A span is a sequence's, or a part of it.
struct StepTokens {
  std::span<const TokenId> tokens;            // [T]
  std::span<const kernels::TokenSpan> spans;  // [S]; `pages` points into the next
  std::span<const int32_t> pages;             // of all spans, also of the whole step, one behind the other
  std::span<const int32_t> logits_rows;       // [P] kept rows whose logits are wanted, ascending
  WholeStep whole;
  std::span<const int32_t> drawn_rows = {};         // kept rows of which only a token is wanted, ascending
  std::span<const comm::RowRun> keepers = {};       // which rank of those that cut a layer keeps which of the T rows
                                                    // between sums: none: every rank all
  std::span<const comm::RowRun> head_keepers = {};  // and of the R rows of the head
  std::span<const DrawRule> rules = {};             // [G] of those of the R rows of which only a token is wanted
};

/// The largest step.
struct StepSize {
  int64_t tokens = 1;  // T, of the whole step and so of a share
  int64_t rows = 1;    // R
  int64_t pages = 1;   // entries in the lists of KV pages of all sequences
  int64_t dealt = 0;   // of T, those that come together from the ranks that cut a layer
};

/// Scratch that a step of `size` takes at most for what it brings to the device.  Units: bytes.
int64_t StagedBytes(const plan::Geometry& geometry, const StepSize& size);

/// Cosines and sines of every token's rotation by one rope table: [T, half] each.
struct RopeAngles {
  int64_t half = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
};

/// The spans of a step with the pages of their slots' rings: position p is in page slot * pages + p / 64 % pages.
struct RingSpans {
  int64_t pages = 0;                          // of a ring
  std::span<const kernels::TokenSpan> spans;  // [S]
};

/// Spans of a step, for layers of every kind.
struct SpanLists {
  std::span<const kernels::TokenSpan> paged;  // [S]
  std::vector<RingSpans> rings;               // by size of rings, for layers with a sliding window
};

/// The same step where kernels read it. Sizes and runs are the host's; what pointers and spans lead to is the device's.
struct StepView {
  int64_t tokens = 0;                     // T
  int64_t rows = 0;                       // R = L + G, of the head: those whose logits are wanted, then the drawn ones
  int64_t drawn = 0;                      // G, of which only a token is wanted
  int64_t ruled = 0;                      // of G, those whose token need not be the best
  int64_t kept = 0;                       // O: of T, those that this rank keeps between sums
  int64_t kept_rows = 0;                  // P: of R, those that this rank keeps
  const TokenId* ids = nullptr;           // [T]
  SpanLists own;                          // of the T tokens
  const int32_t* head_rows = nullptr;     // [P] of the O rows
  const int32_t* argmax_rows = nullptr;   // [R] L times -1, then L to R - 1: the head's rows whose argmax is wanted
  const DrawRule* rules = nullptr;        // [R] by which a token is drawn
  std::span<const DrawRule> drawn_rules;  // those of G, on the host
  std::vector<RopeAngles> ropes;          // by rope table of the geometry
  int64_t key_visits = 0;                 // pairs of a token and a key that attention without a window meets
  int64_t whole_tokens = 0;               // of the context group
  int64_t whole_rows = 0;                 // and rows of the head
  SpanLists whole;                        // of them
  std::span<const comm::RowRun> runs;     // and who computes them
  std::span<const comm::RowRun> keepers, head_keepers;  // as in StepTokens
};

}  // namespace trivet::model
