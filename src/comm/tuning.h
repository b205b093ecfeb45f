// SPDX-License-Identifier: Apache-2.0
// Where sums over ranks change from one form to the other: built in, or measured on a machine (`trivet tune`) and kept
// in a file. Both forms give the same bits, so what a file says can change times alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/backend.h"
#include "base/result.h"
#include "comm/peer_rules.h"
#include "device/device.h"

namespace trivet::comm {

/// Up to how many bytes a sum goes one-shot, by what its parts are.
struct Crossovers {
  int64_t int64_bytes = 0;
  int64_t float32_bytes = 0;  // bit patterns, too

  /// That of parts of type T.
  template <class T>
  constexpr int64_t Of() const {
    return sizeof(T) == sizeof(int64_t) ? int64_bytes : float32_bytes;
  }
  bool operator==(const Crossovers&) const = default;
};

/// How long sums are shared out where the links of ranks differ: by weights, and from how many bytes on.
struct WeightedShares {
  Weights weights;
  int64_t from_bytes = INT64_MAX;  // never
};

/// How ranks reach each other.
struct Way {
  Backend backend = Backend::kCpu;
  bool peer = false;  // in memory of the GPUs, instead of the host's
  int64_t ranks = 1;

  /// "3 ranks on cuda by peer".
  std::string Name() const;
  bool operator==(const Way&) const = default;
};

/// What holds where nothing was measured.
Crossovers BuiltInCrossovers(const Way& way);
/// The shortest sum of which both forms are measured: below it none has anything to share out.  Units: bytes.
inline constexpr int64_t kShortestTuned = 4096;
/// Sums that are measured with weights: shorter ones have no chunks to speak of.  Units: bytes.
inline constexpr int64_t kLongSums[] = {1 << 20, 2 << 20, 4 << 20, 8 << 20};
/// The longest sum that a way can do one-shot without cutting it, and of which both forms are measured.  Units: bytes.
int64_t MostOneShotBytes(const Way& way);

/// The machine, and the version of the algorithms: what was measured elsewhere does not count.
std::string TuningFingerprint(const device::Device& device);

/// One measured result.
struct TunedWay {
  std::string machine;  // its fingerprint
  Way way;
  Crossovers one_shot;
  WeightedShares weighted = {};
};

/// What a group does, and why.
struct CrossoverChoice {
  Crossovers one_shot;
  WeightedShares weighted;  // equal shares where nothing else was measured
  bool measured = false;
  std::string reason;  // where they were measured, or why those that are built in hold
};

/// What a file holds, and nothing without one.
class Tuning {
 public:
  /// Built-in values for everything, for the reason `why`.
  Tuning() : Tuning("no file") {}
  explicit Tuning(std::string why) : why_(std::move(why)) {}
  /// What --tuning asks for: "none"; "auto", the user's own file if there is one; or a file.
  /// Errors:  those of Read.
  static Result<Tuning> Open(const std::string& flag);
  /// Errors: kNotFound, kIo; kInvalid when it is no such file, has a key that is none, or holds what cannot have been
  /// measured.
  static Result<Tuning> Read(const std::string& path);
  /// The user's own file; "" where the environment names no folder for it.
  static std::string DefaultPath();

  /// Takes a result, in place of an earlier one for the same machine and way.
  void Put(const TunedWay& result);
  /// Errors: those of WriteTextFile.
  Status Write(const std::string& path) const;

  /// How sums go that way on the machine with that fingerprint.
  CrossoverChoice Choose(const std::string& machine, const Way& way) const;
  /// What was measured on that machine.
  std::vector<TunedWay> Of(const std::string& machine) const;
  /// The file, or "".
  const std::string& path() const { return path_; }
  const std::string& why() const { return why_; }

 private:
  std::string path_, why_;
  std::vector<TunedWay> results_;
};

/// What sums of one size take in both forms.
struct FormTimes {
  int64_t bytes = 0;
  double one_shot_us = 0, two_shot_us = 0;
};
/// The border that loses least: of the sizes in ascending order the one up to which one-shot is taken so that the
/// product of all times is smallest, or 0. A single wrong time moves it little.
int64_t BestCrossover(std::span<const FormTimes> times);

/// What long sums of one size take with equal shares and with weighted ones.
struct WeightedTimes {
  int64_t bytes = 0;
  double equal_us = 0, weighted_us = 0;
};
/// From which of the sizes, in ascending order, weights are worth it: there and at all longer ones they save a
/// twentieth at least. INT64_MAX: nowhere.
int64_t WeightedFrom(std::span<const WeightedTimes> times);

/// Weights for ranks whose links carry so many bytes per second each way: those with which the busiest link is done
/// first when all links work both ways all the time. Then rank i's carries its parts of others' shares and the totals
/// of its own, S + (ranks - 2) * share_i of S bytes; so slow ranks get little or nothing. Equal when the rates are
/// within a tenth of each other, which is within the noise of measuring them, or the ranks are two, whose links carry S
/// anyway.
Weights WeightsFor(std::span<const double> rates);

}  // namespace trivet::comm
