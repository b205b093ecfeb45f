// SPDX-License-Identifier: Apache-2.0
// RunLog: what one rank notes while it runs. Every entry carries the global token, so that batches, chunks and
// schedules leave no trace in it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "record/records.h"

namespace trivet::record {

/// Where an expert is computed.
struct Address {
  uint16_t ep_rank = 0, local_slot = 0;
};

/// What a log is made with.
struct LogOptions {
  Level level = Level::kOff;
  Digest domain;                   // what all decisions' digests begin with: the numeric contract
  int64_t top_k = 0;               // experts of a decision
  std::vector<Address> addresses;  // [E], for dispatch records
  uint32_t version = 0;            // of the placement they come from
};

/// The digest of a decision.
///   domain   see LogOptions;  slots: the decision's, in order
Digest DecisionDigest(const Digest& domain, const RouteHead& head, std::span<const RouteSlot> slots);

/// How the sum or gather at a site was made, as the code that made it says. All texts are literals.
struct Collective {
  Site site = Site::kEmbed;
  int16_t layer = 0;
  int64_t group = 1;  // ranks that took part
  std::string_view kind = "none";
  std::string_view configured = "none", actual = "none";
  std::string_view order = "none", payload = "none", accumulate = "none", round_at = "none";
  auto operator<=>(const Collective&) const = default;
};

/// Flags of a decision's head: experts were forced on it, and are others than the router's own choice.
inline constexpr uint32_t kForced = 1, kForcedOther = 2;

/// The choice of a layer for all rows of a step: [T, K] each, and [T, K + 1] for `choice`, whose last column is the
/// best value that was not chosen. `among` is the fewest experts that any choice on the way was made among. `forced`
/// [T, K] and `other` [T] are those of kernels::Route, or null.
struct Choice {
  const int32_t* experts = nullptr;
  const float* weights = nullptr;
  const float* scores = nullptr;
  const float* choice = nullptr;
  const int32_t* forced = nullptr;
  const int32_t* other = nullptr;
  int64_t among = 0;
};

/// Which of the rows that a rank computes are its own to note, where those that cut a layer with it have the others:
/// indices, ascending.
struct KeptRows {
  std::vector<int32_t> rows;    // of the step's rows
  std::vector<int32_t> logits;  // of those whose logits the step gives
};

/// The log of one rank. One thread uses it.
class RunLog {
 public:
  explicit RunLog(LogOptions options)
      : options_(std::move(options)), addresses_(options_.addresses), version_(options_.version) {}

  const LogOptions& options() const { return options_; }

  /// Begins a step.
  ///   rows         [T]
  ///   logits_rows  [L] the tokens whose logits the step gives, kPadding for those that are not to be noted
  ///   kept         [O] and [P] of them; without it all
  void BeginStep(std::vector<RowRecord> rows, std::vector<int64_t> logits_rows,
                 const std::optional<KeptRows>& kept = std::nullopt);

  /// Notes a digest of every kept token's values at a site.
  ///   values  [O, n]: the logical values only, since pads differ between layouts
  void Rows(Site site, int64_t layer, std::span<const float> values);
  /// The same for the rows whose logits are wanted.
  ///   values  [P, n], of logits themselves [L, n]
  void LogitsRows(Site site, int64_t layer, std::span<const float> values);
  /// Keeps logits themselves, of whatever rank, where the level asks for them.
  ///   tokens  [L], kPadding for those that are not to be noted;  values: [L, V]
  void KeepLogits(std::span<const int64_t> tokens, std::span<const float> values);
  /// From now on dispatch records are by another placement.
  ///   addresses  [E];  version: as LogOptions::version
  void Place(std::vector<Address> addresses, uint32_t version);
  /// Notes the decisions of a layer for the kept rows.
  void Route(int64_t layer, const Choice& choice);
  /// Notes the pairs of a token and a slot that a rank multiplies in a layer.
  ///   pairs        pair p is slot p % K of row p / K
  ///   local_slots  the expert slot that each meets
  void Execute(int64_t layer, std::span<const int32_t> pairs, std::span<const int32_t> local_slots);
  /// Counts a sum or a gather; in a step without rows there was none.
  void Count(const Collective& collective) {
    if (!step_rows_.empty()) ++collectives_[collective];
  }

  /// Sorts all records, and drops those that a token computed a second time repeats exactly.
  void Sort();

  /// The fewest experts that a choice was made among; 0: none was made.
  int64_t chosen_among() const { return chosen_among_; }
  const std::vector<RowRecord>& rows() const { return rows_; }
  const std::vector<DecisionRecord>& decisions() const { return decisions_; }
  const std::vector<RouteHead>& routes() const { return routes_; }
  /// [routes, K], in their order.
  const std::vector<RouteSlot>& route_slots() const { return route_slots_; }
  const std::vector<BoundRecord>& bounds() const { return bounds_; }
  const std::vector<DispatchRecord>& dispatches() const { return dispatches_; }
  const std::vector<ExecuteRecord>& executions() const { return executions_; }
  /// Rows of logits by token.
  const std::map<int64_t, std::vector<float>>& logits() const { return logits_; }
  /// Kinds of sums and gathers, and how often each happened.
  const std::map<Collective, int64_t>& collectives() const { return collectives_; }

 private:
  void Bound(int64_t token, Site site, int64_t layer, std::span<const float> values);
  void SortRoutes();

  const LogOptions options_;
  std::vector<Address> addresses_;  // and version: of the placement in use
  uint32_t version_;
  int64_t chosen_among_ = 0;
  std::vector<RowRecord> step_rows_;
  std::vector<int64_t> step_logits_;
  KeptRows kept_;
  std::vector<RowRecord> rows_;
  std::vector<DecisionRecord> decisions_;
  std::vector<RouteHead> routes_;
  std::vector<RouteSlot> route_slots_;
  std::vector<BoundRecord> bounds_;
  std::vector<DispatchRecord> dispatches_;
  std::vector<ExecuteRecord> executions_;
  std::map<int64_t, std::vector<float>> logits_;
  std::map<Collective, int64_t> collectives_;
};

}  // namespace trivet::record
