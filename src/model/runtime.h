// SPDX-License-Identifier: Apache-2.0
// What a forward pass runs with: the chosen kernels, the rank's threads, scratch, caches and communicator; and the few
// calls that every layer makes through them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/caches.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "device/workspace.h"
#include "kernels/registry.h"
#include "model/forced_routes.h"
#include "model/step_view.h"
#include "model/tables.h"
#include "model/weights.h"
#include "plan/geometry.h"
#include "plan/layout.h"
#include "record/run_log.h"

namespace trivet::model {

/// A sum over K that leaves and ranks still add to: [T, H], on the integer grid or in float32, as the rank adds.
/// Exactly one of the two is not empty.
struct Sums {
  std::span<int64_t> fixed;
  std::span<float> fast;
};

/// A residual branch: its site and layer, whether ranks hold parts of it, the norm of its output, or null, and who
/// keeps which rows of it, all ranks all where there are none.
struct Branch {
  record::Site site = record::Site::kMixer;
  int64_t layer = 0;
  bool partial = true;
  const float* norm = nullptr;
  std::span<const comm::RowRun> keepers = {};
};

/// The norm in front of a residual branch: its weight, null where there is no branch, and its output [O, H].
struct NextBranch {
  const float* weight = nullptr;
  std::span<float> y;
};

/// Where rows come together.
struct RowsSite {
  record::Site site = record::Site::kMixerNorm;
  int64_t layer = 0;
};

/// A norm's weight, its length, and what is added under the root and to the weight.
struct NormWeight {
  const float* weight = nullptr;
  int64_t n = 0;
  double eps = 0;
  double offset = 0;
};

/// Where the rows that a stage computes come from and go to.
struct Pipeline {
  comm::Communicator& world;
  int64_t before = 0;  // rank of the world; this one itself in the first stage
  int64_t after = 0;   // and in the last one
  bool bf16 = false;   // comm::FaultKind::kHandBF16

  /// Waits for the rows of the stage before.  Errors: kPeer.
  Status Receive(std::span<float> x) const { return world.Hand(before, world.rank(), x); }
  /// Hands them to the stage behind.  Errors: kPeer.
  Status Send(std::span<float> x) const;
};

/// The surroundings of one rank's forward pass. References outlive it.
struct Runtime {
  const plan::Geometry& geometry;
  const plan::Layout& layout;
  const plan::RankShard& shard;
  const kernels::Kernels& kernels;
  const kernels::Numerics numerics;  // of what a rank adds
  const bool adds_floats;            // ranks add up float32, whatever each of them adds
  const device::Device& device;
  const Tables& tables;
  comm::Communicator& comm;     // of the ranks that cut a layer between them
  comm::Communicator& context;  // of those that share out the rows of a step
  const Pipeline pipeline;
  ThreadPool& pool;
  device::Workspace& workspace;
  cache::Caches& caches;
  record::RunLog* log = nullptr;   // what the run notes about itself, when asked for
  ForcedRoutes* forced = nullptr;  // choices that come from a file, when asked for

  /// y = x w^T, complete on this rank.
  ///   x [m, K] row stride K;  y [m, N] dense
  void Multiply(std::span<const float> x, int64_t m, const Matrix& w, std::span<float> y) const {
    MultiplyStrided(x.data(), w.k, m, w, y.data(), w.n);
  }
  /// As Multiply, with row m of x at x + m * x_stride and of y at y + m * y_stride.
  void MultiplyStrided(const float* x, int64_t x_stride, int64_t m, const Matrix& w, float* y, int64_t y_stride) const;
  /// sums += row_scale * bias for m rows, when this rank holds the bias: one more column of a sum over K, whose input
  /// is 1.
  ///   bias       [N, 1], or absent
  ///   row_scale  [m], or null for 1
  void AddBias(const Matrix& bias, int64_t m, const float* row_scale, const Sums& sums) const;
  /// y[m] += bias, when there is one.
  ///   y [m, n] dense
  void AddBias(const float* bias, int64_t m, int64_t n, std::span<float> y) const;
  /// sums += row_scale * x w^T: this rank's part of a sum over K.
  ///   x          [m, K];  row_scale: [m], or null for 1
  void MultiplyAdd(std::span<const float> x, int64_t m, const Matrix& w, const float* row_scale,
                   const Sums& sums) const {
    AddProduct(x.data(), w.k, m, w, row_scale, sums);
  }

  /// x = f(x) for every element.
  void MapInPlace(kernels::MapFunction function, float parameter, std::span<float> x) const;

  /// y = RMS norm of x, both [rows, H].
  void Norm(std::span<const float> x, const float* weight, std::span<float> y) const;
  /// RMS norms of `n` channels in place: `rows.heads` of them in each of `tokens` rows; nothing without a weight.
  void NormInPlace(float* x, const kernels::NestedRows& rows, int64_t tokens, const NormWeight& norm) const;

  /// Zeroed sums of `tokens` rows in the workspace.
  Sums NewSums(int64_t tokens) const;
  /// Finishes a residual branch: adds the sums of all ranks when they hold parts, then x += the total, normalised first
  /// where the branch has a norm of its own; then begins the next, unless there is none: `next.y` becomes the norm of
  /// x, and the sums become zero. All that of the rows that this rank keeps.
  ///   sums [T, H];  x [O, H]
  /// Errors:  kPeer.
  Status AddResidual(const Branch& branch, const Sums& sums, std::span<float> x, const NextBranch& next) const;

  /// All rows [T, columns] of the ranks that cut a layer, of which each has those that it keeps.
  ///   memory  for them, unless this rank has all
  /// Ranks:    collective over these.  Errors: kPeer.
  Result<comm::RowsView> JoinRows(const RowsSite& at, std::span<const float> kept, int64_t columns,
                                  std::span<const comm::RowRun> keepers, std::span<float> memory) const;
  /// Memory for them: none where they are all here.
  std::span<float> JoinedRows(int64_t columns, std::span<const comm::RowRun> keepers) const {
    return workspace.Take<float>(comm.HasAll(keepers) ? 0 : comm::AllRows(keepers) * columns);
  }

  /// Rows of `columns` of the whole step, of which this rank has its own; in the workspace, unless they were whole.
  /// Ranks:   collective over a context group.  Errors: kPeer.
  Result<comm::RowsView> WholeRows(const StepView& step, const comm::RowsView& own, int64_t columns) const {
    return context.GatherRows(own, columns, step.runs, workspace.Take<float>(step.whole_tokens * columns));
  }

  /// Notes the values of every kept token at a site, when a log is kept.
  void LogRows(record::Site site, int64_t layer, std::span<const float> values) const;
  /// The same for the rows whose logits are wanted.
  void LogLogitsRows(record::Site site, std::span<const float> values) const;
  /// Notes how the sum or gather of a site was made, as the communicator says of its last.
  void LogCollective(record::Site site, int64_t layer, const comm::CollectiveFacts& facts) const;
  /// Values where a log can read them: themselves on a processor, else a copy in `host`.
  template <class T>
  std::span<const T> OnHost(std::span<const T> values, std::vector<T>* host) const {
    if (device.backend() == Backend::kCpu) return values;
    host->resize(values.size());
    device.Download(host->data(), values.data(), static_cast<int64_t>(values.size_bytes()));
    return *host;
  }
  /// Whether this rank is to make a mistake at a site.
  bool Planted(comm::FaultKind kind, int64_t site) const {
    const comm::Fault& fault = pipeline.world.fault();
    return fault.Hits(kind, pipeline.world.rank()) && fault.site == site;
  }

  /// Runs body(begin, end) over `count` items: all of them at once on a GPU, where kernels share the work out
  /// themselves; else in ranges for threads. `work` is the items' total cost in multiply-adds, from which a thread's
  /// share follows. A range stays short enough that peers see this rank's progress
  /// (comm::GroupOptions::hang_timeout_us).
  template <class Body>
  void Parallel(int64_t count, int64_t work, const Body& body) const {
    if (count == 0) return;
    if (device.backend() != Backend::kCpu) return body(int64_t{0}, count);
    // A range should take some microseconds, 2^17 multiply-adds on one core, and none is longer than 2^26, a third of a
    // second on the slowest row. Waking a thread takes tens: a thread that sleeps is left alone for less than 2^20.
    const int64_t ranges = std::max<int64_t>({1, std::min<int64_t>(work >> 17, pool.size() * 4), work >> 26});
    const ThreadPool::Help help = work >> 20 > 0 ? ThreadPool::Help::kAll : ThreadPool::Help::kAwake;
    pool.ParallelFor(count, (count + ranges - 1) / ranges, body, comm.tick(), help);
  }
  /// Runs `row` over the range [0, count) of `args`, as Parallel does.
  template <class Row, class Args>
  void RunParallel(const Row& row, const Args& args, int64_t count, int64_t work) const {
    Parallel(count, work, [&](int64_t begin, int64_t end) {
      Args part = args;
      part.begin = begin;
      part.end = end;
      row.run(part);
    });
  }

  /// What an element costs, in multiply-adds, where it is taken one by one or comes from memory.
  static constexpr int64_t kElementWork = 16;
  /// Threads share gemms of a single row out by so many tiles, which the rows take at once; others by single tiles.
  static constexpr int64_t kTilesOfRow = 4;

 private:
  // Sets sums to zero.
  void Clear(const Sums& sums) const;
  // x += `total`, through the norm of the branch where it has one.
  void AddTotal(const Branch& branch, const kernels::AddSums::Args& total, std::span<float> x) const;
  // sums += row_scale * x w^T, rows of x x_stride apart.
  void AddProduct(const float* x, int64_t x_stride, int64_t m, const Matrix& w, const float* row_scale,
                  const Sums& sums) const;
  // Runs `args` with every part of `w`; its outputs are those of row 0.
  void RunGemm(const kernels::Gemm::Args& args, const Matrix& w) const;
};

}  // namespace trivet::model
