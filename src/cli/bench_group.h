// SPDX-License-Identifier: Apache-2.0
// A group of ranks without a model, for measuring what passes between them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/communicator.h"
#include "device/device.h"

namespace trivet::cli {

/// Flags of a group.
struct GroupFlags {
  int64_t ranks = 2;
  std::string launch = "threads";
  std::string backend = "cpu";
  std::string transport = "auto";
  std::string tuning = "auto";
  bool json = false;
  void Add(CLI::App* app);
  /// The same without what `trivet tune` chooses itself: ranks, launch and tuning.
  void AddWay(CLI::App* app);
  /// Errors:  kUsage for what no group can be.
  Status Check() const;
};

/// What one rank has: its end of the group, and its device.
struct GroupRank {
  comm::Group& group;
  comm::Communicator& comm;
  const device::Device& device;
};

/// Starts the ranks, runs `body` on each of them and waits for all.
/// Errors:  kUsage; those of comm::Tuning::Open and of connecting; the first cause when a rank failed.
Status RunGroup(const GroupFlags& flags, const std::function<Status(const GroupRank& rank)>& body);

/// Microseconds of one of `calls` equal parts of `work`, the median of several rounds.  Ranks: collective.
Result<double> TimeOf(const GroupRank& rank, int64_t calls, const std::function<Status()>& work);
/// Whether sums of these ranks can be part of a recorded graph, as those of a decode step are.
bool Records(const GroupRank& rank);
/// As TimeOf, of `work` that is recorded once and then repeated as a graph.
Result<double> GraphTimeOf(const GroupRank& rank, int64_t calls, const std::function<Status()>& work);

/// Bytes per second that each rank writes when it writes to all others at the same time and nobody else does anything:
/// what its own link carries, however slow one of the others is. Equal where GPUs do not reach each other.
/// Ranks:  collective; all get the same.
Result<std::vector<double>> WriteRates(const GroupRank& rank);

/// --tuning, of whatever makes sums.
void AddTuning(CLI::App* app, std::string* tuning);

/// Adds `trivet bench allreduce` and `trivet bench p2p`; each gives back what to run.
std::function<Status()> AddBenchAllReduce(CLI::App* app);
std::function<Status()> AddBenchPeers(CLI::App* app);

}  // namespace trivet::cli
