// SPDX-License-Identifier: Apache-2.0
// Rows of ranks that come together, and go back.
#include <algorithm>

#include "base/check.h"
#include "comm/communicator.h"

namespace trivet::comm {
namespace {

// How rows come together, and go back.
CollectiveFacts RowsMoved(int64_t ranks) {
  return {ranks, "gather", "pieces", "pieces", "rows", "f32", "none", "nowhere"};
}

RowsView RowsFrom(const RowsView& rows, int64_t first) { return {rows.data + first * rows.stride, rows.stride}; }

void CopyRows(const RowsView& from, int64_t count, int64_t columns, float* to, int64_t to_stride) {
  for (int64_t i = 0; i < count; ++i) std::copy_n(from.data + i * from.stride, columns, to + i * to_stride);
}

}  // namespace

void Communicator::ShowRows(const RowsView& rows, int64_t count, int64_t columns, int64_t parity) {
  auto* slot = reinterpret_cast<float*>(group_->slot(rank_, parity));
  CopyRows(rows, count, columns, slot, columns);
  if (!fault_.Hits(FaultKind::kHandBF16, rank_)) return;
  last_.round_at = "bf16, before they are shown";
  std::transform(slot, slot + count * columns, slot, RoundedToBF16);
}

RowsView Communicator::ShownRows(int64_t rank, int64_t columns, int64_t parity) const {
  return {reinterpret_cast<const float*>(group_->slot(rank, parity)), columns};
}

Result<RowsView> Communicator::GatherRows(const RowsView& own, int64_t columns, std::span<const RowRun> runs,
                                          std::span<float> all) {
  last_ = {};
  if (HasAll(runs)) return own;
  last_ = RowsMoved(size());
  const Timer timer(this);
  const int64_t most = RowsAtOnce<float>(columns);
  const int64_t own_rows = RowsOf(runs, rank_);
  int64_t longest = 0;
  for (int64_t rank = 0; rank < size(); ++rank) longest = std::max(longest, RowsOf(runs, rank));
  for (int64_t first = 0; first < longest; first += most) {
    TRY_ASSIGN(const int64_t parity, NextSlots());
    const int64_t shown = std::clamp<int64_t>(own_rows - first, 0, most);
    ShowRows(RowsFrom(own, first), shown, columns, parity);
    TRY(group_->Barrier(rank_));
    std::vector<int64_t> passed(static_cast<size_t>(size()));  // rows of every rank in the runs so far
    for (const RowRun& run : runs) {
      int64_t& at = passed[static_cast<size_t>(run.rank)];
      const int64_t begin = std::clamp(first, at, at + run.count), end = std::clamp(first + most, at, at + run.count);
      if (begin < end) {
        const RowsView rows =
            run.rank == rank_ ? RowsFrom(own, begin) : RowsFrom(ShownRows(run.rank, columns, parity), begin - first);
        CopyRows(rows, end - begin, columns, all.data() + (run.begin + begin - at) * columns, columns);
      }
      at += run.count;
    }
  }
  return RowsView{all.data(), columns};
}

Result<std::span<float>> Communicator::ReturnRows(std::span<float> all, int64_t units, int64_t width,
                                                  std::span<const RowRun> runs, std::span<float> own) {
  last_ = {};
  if (size() == 1) return all;
  last_ = RowsMoved(size());
  const Timer timer(this);
  const auto columns_of = [&](int64_t rank) {
    const Share share = ShareOf(units, size(), rank);
    return Share{share.begin * width, share.end * width};
  };
  const int64_t most = RowsAtOnce<float>((units + size() - 1) / size() * width), full = units * width;
  const RowsView whole{all.data(), full};
  const int64_t rows = AllRows(runs);
  const Share mine = columns_of(rank_);
  for (int64_t first = 0; first < rows; first += most) {
    TRY_ASSIGN(const int64_t parity, NextSlots());
    const RowsView piece = RowsFrom(whole, first);
    ShowRows({piece.data + mine.begin, piece.stride}, std::min(most, rows - first), mine.end - mine.begin, parity);
    TRY(group_->Barrier(rank_));
    int64_t at = 0;  // own rows in the runs so far
    for (const RowRun& run : runs) {
      if (run.rank != rank_) continue;
      const int64_t begin = std::clamp(first, run.begin, run.begin + run.count);
      const int64_t end = std::clamp(first + most, run.begin, run.begin + run.count);
      for (int64_t peer = 0; peer < size() && begin < end; ++peer) {
        const Share range = columns_of(peer);
        const int64_t columns = range.end - range.begin;
        const RowsView from = peer == rank_ ? RowsView{RowsFrom(whole, begin).data + range.begin, full}
                                            : RowsFrom(ShownRows(peer, columns, parity), begin - first);
        CopyRows(from, end - begin, columns, own.data() + (at + begin - run.begin) * full + range.begin, full);
      }
      at += run.count;
    }
  }
  return own;
}

}  // namespace trivet::comm
