// SPDX-License-Identifier: Apache-2.0
// Collectives of one rank. Every rank of a group makes the same calls in the same order; a group of one is the identity
// by the same code. Sums are made here and nowhere else.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/result.h"
#include "comm/fault.h"
#include "comm/group.h"
#include "comm/peer_transport.h"
#include "comm/transport.h"
#include "comm/tuning.h"
#include "device/device.h"
#include "kernels/norm.h"

namespace trivet::comm {

/// The columns of a matrix that one rank has.
struct ColumnRange {
  const float* data = nullptr;  // [rows, stride] float32; the first `columns` of each row count
  int64_t stride = 0;
  int64_t columns = 0;
  int64_t begin = 0;     // where they belong in a full row
  bool on_host = false;  // they are in memory of the processor, wherever the device's are
};

/// Whom rows are of that every rank of a group has.
inline constexpr int64_t kEveryRank = -1;

/// Rows [begin, begin + count) of all rows, which one rank has, or every rank.
struct RowRun {
  int64_t rank = 0;
  int64_t begin = 0, count = 0;
};

/// The number of all rows of ascending runs without gaps.
inline int64_t AllRows(std::span<const RowRun> runs) {
  return runs.empty() ? 0 : runs.back().begin + runs.back().count;
}
/// Those that `rank` has.
inline int64_t RowsOf(std::span<const RowRun> runs, int64_t rank) {
  int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rank == rank || run.rank == kEveryRank ? run.count : 0;
  return rows;
}

/// Rows of `columns` elements of type T that pass through a slot at a time; at least one must.
template <class T>
int64_t RowsAtOnce(int64_t columns) {
  const int64_t rows = kSlotBytes / static_cast<int64_t>(sizeof(T)) / std::max<int64_t>(1, columns);
  CHECK(rows > 0);
  return rows;
}

/// Rows of float32 in memory of the processor, `stride` apart.
struct RowsView {
  const float* data = nullptr;
  int64_t stride = 0;
};

/// Takes rows [begin, begin + count) of a matrix: dense, in memory of the processor or of the device that the rank was
/// connected with (`where`), valid during the call and for what it puts into the device's stream.
using RowsSink = std::function<void(const float* rows, int64_t begin, int64_t count, Backend where)>;

/// How a collective was made, as the code that made it says. All texts are literals.
struct CollectiveFacts {
  int64_t ranks = 1;                     // that took part
  std::string_view kind = "none";        // all-reduce, reduce-scatter, gather; none: nothing to do in a group of one
  std::string_view configured = "none";  // the algorithm that its size asks for
  std::string_view actual = "none";      // the one that ran
  std::string_view order = "none";       // in which parts were added
  std::string_view payload = "none";     // element type of the parts
  std::string_view accumulate = "none";  // and of the sum
  std::string_view round_at = "none";    // where a value was rounded
};

/// One rank's end of the group.
class Communicator {
 public:
  ///   rank   in `group`
  ///   fault  its rank is one of the whole group
  Communicator(Group* group, int64_t rank, const Fault& fault = {});

  int64_t rank() const { return rank_; }
  int64_t size() const { return group_->ranks(); }
  /// The planted fault, for those who make mistakes outside of sums.
  const Fault& fault() const { return fault_; }
  std::atomic<uint32_t>* tick() { return &group_->progress(rank_); }

  /// Says where the values that AllReduce and GatherColumns are given live, and how they go to the other ranks; without
  /// it they live in the processor's memory.
  ///   tuning   says where their forms cross, if it knows this machine
  /// Ranks:   collective; the same tuning on all.
  /// Errors:  kUnsupported with the reason when `transport` is kPeer and the group has no such way; kPeer.
  Status Connect(const device::Device& device, Transport transport, const Tuning& tuning = Tuning());
  /// Ends that in order.  Ranks: collective.  Errors: kPeer.
  Status Close();

  /// Why ranks on GPUs exchange through the host; empty when they do not.
  const std::string& detour() const { return detour_; }
  /// Up to how many bytes sums go one-shot, how longer ones are shared out, and why.
  const CrossoverChoice& crossovers() const { return crossovers_; }
  /// How sums of parts of type T are made.
  template <class T>
  Forms FormsOf() const {
    return {crossovers_.one_shot.Of<T>(), crossovers_.weighted.from_bytes, crossovers_.weighted.weights};
  }
  /// How a sum of `bytes` in parts of type T is made.
  template <class T>
  Algorithm Choose(int64_t bytes) const {
    return FormsOf<T>().Choose(bytes);
  }
  /// Lets sums of float32 travel in 6.25 bits a value from here on, whatever their size (comm/wht6.h): in whole groups
  /// of kWhtGroup values.  Ranks: the same on all.
  void Compress() { compressed_ = true; }
  /// Makes sums that way from here on, whatever their size. For measurements.  Ranks: the same on all.
  void Insist(Algorithm algorithm);
  /// Shares weighted sums out like this from here on, a weight for each rank.  Ranks: the same on all.
  void SetWeights(const Weights& weights);
  /// The way between GPUs, or null; for measurements.
  PeerTransport* peer() const { return peer_.get(); }

  /// Whether AllReduce can be part of a recorded graph: what goes through the host cannot.
  bool recordable() const {
    if (fault_.kind == FaultKind::kRouterUlp) return false;
    return (size() == 1 && fault_.kind == FaultKind::kNone) || peer_ != nullptr;
  }

  /// Replaces `values` on every rank by the sum over ranks. On a GPU it happens in the order of the thread's stream,
  /// and what fails there is an error of the next GatherColumns or Wait.
  ///   int64   exact; any order gives the same integer
  ///   float   float32, ranks added in ascending order, starting with rank 0's value
  ///   uint32  bit patterns of which at most one rank's is non-zero
  /// Errors:  kPeer.
  Status AllReduce(std::span<int64_t> values);
  Status AllReduce(std::span<float> values);
  Status AllReduce(std::span<uint32_t> values);

  /// Whether AllReduceAddNorm makes that sum and norm in one kernel: between GPUs, of as few rows as decoding has.
  ///   args  sums_fixed, and memory for sums_fast where ranks add floats
  bool JoinsNorm(const kernels::AddNorm::Args& args) const;
  /// AllReduce of sums_fixed, rows [0, args.end), and AddNorm after it, where JoinsNorm; where sums_fast is given, too,
  /// RoundSums into it, its AllReduce and AddNorm of it. The bytes are those of one after the other; what sums_fast
  /// then holds is not said. Errors:  kPeer.
  Status AllReduceAddNorm(const kernels::AddNorm::Args& args);

  /// Whether this rank has all of the rows, as every other one has then; of no runs, too.
  bool HasAll(std::span<const RowRun> runs) const {
    return size() == 1 ||
           std::all_of(runs.begin(), runs.end(), [](const RowRun& run) { return run.rank == kEveryRank; });
  }

  /// AllReduce of which every rank needs its own rows alone.
  ///   values   [rows, columns] on every rank, in memory of the processor unless every rank has every row
  ///   runs     of all rows, ascending and without gaps, the same on all ranks; none: every rank has every row
  ///   returns  the sums of this rank's rows in the order of its runs, dense: the first of `values`, whose others are
  ///            zero then
  /// Errors:    kPeer.
  Result<std::span<int64_t>> ReduceRows(std::span<int64_t> values, int64_t columns, std::span<const RowRun> runs);
  Result<std::span<float>> ReduceRows(std::span<float> values, int64_t columns, std::span<const RowRun> runs);
  Result<std::span<uint32_t>> ReduceRows(std::span<uint32_t> values, int64_t columns, std::span<const RowRun> runs);
  /// The same of rows that are complete on every rank: nothing is added, and nothing moves between ranks.
  template <class T>
  std::span<T> OwnRows(std::span<T> values, int64_t columns, std::span<const RowRun> runs) {
    last_ = {};
    if (HasAll(runs)) return values;
    CHECK(device_.backend() == Backend::kCpu);
    auto to = values.begin();
    for (const RowRun& run : runs) {
      if (run.rank == rank_) to = std::copy_n(values.begin() + run.begin * columns, run.count * columns, to);
    }
    std::fill(to, values.end(), T{});
    return {values.begin(), to};
  }

  /// Gathers column ranges of a matrix on rank 0.
  ///   full     rank 0: [rows, full_columns] float32; others: empty
  /// Errors:    kPeer.
  Status GatherColumns(const ColumnRange& local, int64_t rows, int64_t full_columns, std::span<float> full);
  /// The same by pieces of whole rows, which rank 0 hands to `sink` where they come together.
  Status GatherColumns(const ColumnRange& local, int64_t rows, int64_t full_columns, const RowsSink& sink);

  /// Hands values from rank `from` to rank `to`; where they are one, and on all other ranks, nothing happens.
  ///   values   float32, in memory of the processor: as many on both
  /// Errors:    kPeer.
  Status Hand(int64_t from, int64_t to, std::span<float> values);

  /// Brings the rows of all ranks together on every rank.
  ///   own      this rank's rows, in the order of its runs
  ///   columns  of a row, which fits into a slot (kSlotBytes)
  ///   runs     of all rows, ascending and without gaps; the same on all ranks
  ///   all      memory for all rows, dense
  ///   returns  them: there, or where they are when this rank has them all
  /// Errors:    kPeer.
  Result<RowsView> GatherRows(const RowsView& own, int64_t columns, std::span<const RowRun> runs, std::span<float> all);

  /// The way back: every rank has its share of the units of columns of all rows, and gets all columns of its own rows.
  ///   all      [rows, units * width], of which this rank has its ShareOf (peer_rules.h) the units
  ///   own      memory for this rank's rows
  ///   returns  them, dense: there, or where they are when the group is one rank
  /// Errors:    kPeer.
  Result<std::span<float>> ReturnRows(std::span<float> all, int64_t units, int64_t width, std::span<const RowRun> runs,
                                      std::span<float> own);

  /// Waits until all that was asked for has happened on this rank.  Errors: kPeer.
  Status Wait();

  /// Rank 0's bytes to everyone; others get them as the result.
  ///   patient  the others wait for rank 0 as long as it takes (see Group::Barrier)
  Result<std::vector<std::byte>> Broadcast(std::span<const std::byte> bytes, bool patient);

  /// A word this rank shows to the others; AnyReport is the union of all, as shown before the last collective.
  void SetReport(uint32_t report) { group_->set_report(rank_, report); }
  uint32_t AnyReport() const;

  /// How the last AllReduce or GatherColumns was made.
  const CollectiveFacts& last() const { return last_; }

  Status Barrier(bool patient = false) { return group_->Barrier(rank_, patient); }
  /// Whether the group was aborted.
  bool aborted() const { return group_->aborted(); }

  /// Starts counting the sites of a step, for planted faults.
  void BeginStep() { site_ = 0; }

 private:
  // Adds the time of its life to the rank's time in collectives.
  class Timer {
   public:
    explicit Timer(Communicator* comm) : total_(comm->group_->collective_us(comm->rank_)) {}
    ~Timer() { total_.fetch_add(NowUs() - begin_, std::memory_order_relaxed); }

   private:
    std::atomic<int64_t>& total_;
    const int64_t begin_ = NowUs();
  };
  Status ConnectPeers(Transport transport);
  template <class T>
  Status Reduce(std::span<T> values);
  Status ReduceCompressed(std::span<float> values);
  // A sum in slots of the host's memory, piece by piece.
  template <class T>
  Status ReduceOneShot(std::span<T> values);
  template <class T>
  Status ReduceByShares(std::span<T> values, const Weights& weights);
  // Brings this rank's part of a piece into its slot.
  template <class T>
  void ShowPart(std::span<const T> values, int64_t parity);
  template <class T>
  void Sum(int64_t parity, int64_t begin, std::span<T> out);
  template <class T>
  Result<std::span<T>> ReduceOwn(std::span<T> values, int64_t columns, std::span<const RowRun> runs);
  template <class T>
  void Spoil(std::span<T> part);
  // Where a sum is made before it goes to `values`: there, or in memory of the host.
  template <class T>
  std::span<T> HostOf(std::span<T> values);
  // The parity of the slots for the next piece. A wait between pieces keeps a writer from overtaking a reader; an abort
  // ends waits early, so nothing is written after one.  Errors: that of the abort.
  Result<int64_t> NextSlots();
  // Puts rows into this rank's slot, dense, as others are to see them.
  void ShowRows(const RowsView& rows, int64_t count, int64_t columns, int64_t parity);
  // Another rank's slot as rows.
  RowsView ShownRows(int64_t rank, int64_t columns, int64_t parity) const;
  // One exchange of a gather: the rows of `out`, full_columns apart, get the columns where `piece` says.
  Status GatherPiece(const ColumnRange& piece, int64_t rows, int64_t full_columns, std::span<float> out);
  // The same through memory of the GPUs, into dense rows of `width`.
  Status GatherOnDevice(const ColumnRange& piece, int64_t rows, int64_t width, float* out);

  Group* group_;
  const int64_t rank_;
  Fault fault_;  // of this group; its rank -1: of none here
  device::Device device_;
  std::unique_ptr<PeerTransport> peer_;
  std::string detour_;
  CrossoverChoice crossovers_;
  bool compressed_ = false;
  std::vector<std::byte> staging_;  // for values of another device
  int64_t calls_ = 0;  // pieces exchanged; its parity picks the slots, so a slow reader is never overwritten
  int64_t site_ = 0;
  CollectiveFacts last_;
};

}  // namespace trivet::comm
