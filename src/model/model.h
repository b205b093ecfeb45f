// SPDX-License-Identifier: Apache-2.0
// The forward pass of one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/graph.h"
#include "model/part_clock.h"
#include "model/runtime.h"
#include "model/step_view.h"
#include "model/weights.h"

namespace trivet::model {

/// What a step leaves behind besides caches.
struct StepOutput {
  std::span<float> logits;         // first rank of the last stage: [L, V] float32, true vocabulary; other ranks: empty
  std::span<float> hidden;         // [the stage's layers][O, H] float32 after every block, or empty when nobody asked
  std::span<uint64_t> drawn = {};  // where the logits are: [G] drawn tokens, as kernels::ArgmaxKey
};

/// What goes from block to block: the residual stream and its norm, [O, H], memory for the norms of all rows where this
/// rank does not keep all, and sums, zeros between branches.
struct Residual {
  std::span<float> x, y, joined;
  Sums sums;
};

struct HeadOutput;

/// A model's shard, immutable after binding.
class Model {
 public:
  Model(const Runtime& runtime, Weights weights) : runtime_(runtime), weights_(std::move(weights)) {}

  /// Computes the stage's layers of one step: T tokens in, logits or drawn tokens out of the last stage; caches move
  /// on. Ranks:   collective over a stage; stages hand on their rows. Errors:  kPeer.
  Status Forward(const StepTokens& tokens, const StepOutput& output);

  const Weights& weights() const { return weights_; }

  /// On a GPU: measures from here on how long it waits between recorded steps.
  void TimeReplays() { clock_ = device::ReplayClock::Make(); }
  /// Those waits since the last call, in microseconds; none unless they are measured.
  std::vector<double> TakeReplayGaps() { return clock_ ? clock_->Take() : std::vector<double>(); }

  /// Times the parts of every decode step from here on, which is not recorded then.
  void TimeParts() { parts_.emplace(runtime_.device); }
  /// Those of the steps since the last call; none unless they are timed.
  std::vector<PartTimes> TakePartTimes() { return parts_ ? parts_->Take() : std::vector<PartTimes>(); }

  /// Scratch that a step of at most `size` needs.  Units: bytes.
  static int64_t WorkspaceBytes(const plan::Geometry& geometry, const plan::RankShard& shard, const StepSize& size);

 private:
  // A step that was recorded, or how often one of its shape ran before.
  struct Recording {
    device::Graph graph;
    int64_t runs = 0;
  };

  Status Compute(const StepView& step, std::span<float> x, std::span<float> hidden, const HeadOutput& head);
  bool IsRepeated(const StepView& step, const StepOutput& output) const;
  Status Repeat(const StepView& step, const std::function<Status()>& compute);
  // What was asked for since the last mark belongs to `part`, where parts are timed.
  void Mark(plan::StepPart part) {
    if (parts_) parts_->Mark(part);
  }
  std::vector<uint64_t> TakeResults(const StepView& step, const HeadOutput& head) const;
  // Layer `at` of the stage, whose normalised input is `h`, [T, H].
  //   returns  that of the next
  Result<std::span<const float>> Block(size_t at, const StepView& step, const Residual& state,
                                       std::span<const float> h);
  // The mixer of layer `at`.
  Status Mix(size_t at, const StepView& step, std::span<const float> h, const Sums& sums);
  // The norms of all rows, of which state.y has those that this rank keeps.
  Result<std::span<const float>> Joined(const RowsSite& site, const StepView& step, const Residual& state) const;

  const Runtime runtime_;
  const Weights weights_;
  // By tokens, rows of the head, and whether tokens are drawn from these.
  std::map<std::tuple<int64_t, int64_t, bool>, Recording> recordings_;
  std::optional<device::ReplayClock> clock_;
  std::optional<PartClock> parts_;
};

}  // namespace trivet::model
