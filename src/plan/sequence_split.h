// SPDX-License-Identifier: Apache-2.0
// How the positions of a sequence are shared out over ranks. Knows no model and no run.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace trivet::plan {

/// How a stretch of positions is split into parts.
///   kContiguous  part c has the c-th of as many chunks as there are parts
///   kZigzag      part c has the chunks c and 2 parts - 1 - c of twice as many, so that early and late positions, which
///                see few and many keys, come together
enum class SequenceSplit { kContiguous, kZigzag };
/// "contiguous" or "zigzag".
const char* SequenceSplitName(SequenceSplit split);
/// The inverse.  Errors: kUsage, naming --cp-split.
Result<SequenceSplit> ParseSequenceSplit(const std::string& name);

/// One of the parts that a stretch is split into, and a position within what the part has.
struct SequencePiece {
  int64_t part = 0, offset = 0, length = 0;
};

/// The part that has position `at` of `length`. Chunks have the same length, rounded up; the last ones may be shorter
/// or empty.
SequencePiece PieceOf(SequenceSplit split, int64_t at, int64_t length, int64_t parts);

/// How the ranks of a context group share out every sequence: stretch after stretch, each split in the same way. Who
/// has a position depends on nothing else, neither on the length of its sequence nor on when it is computed.
struct ContextSplit {
  int64_t ranks = 1;
  SequenceSplit split = SequenceSplit::kContiguous;
  int64_t stretch = 64;  // positions

  /// The rank of the group that computes `position`.
  int64_t OwnerOf(int64_t position) const { return PieceOf(split, position % stretch, stretch, ranks).part; }
};

/// Whom a row is of that all ranks of a group have.
inline constexpr int64_t kEveryRank = -1;

/// Whose the row of a position is.
struct RowOwner {
  int64_t context = 0;        // the rank of a context group that computes it
  int64_t rank = kEveryRank;  // of those that cut a layer between them, the one that keeps it between their sums
};

/// How the ranks of a stage share out every sequence: the ranks of context groups first, and those that cut a layer,
/// where rows are dealt to them, what that leaves, in contiguous parts.
struct RowSplit {
  ContextSplit context;
  int64_t ranks = 1;          // that cut a layer between them
  bool dealt = false;         // to these; else each of them has all rows
  bool context_first = true;  // else the other way round, which no layout declares

  /// Whose the row of `position` is.
  RowOwner OwnerOf(int64_t position) const;
};

/// The stretch of which every rank has whole pages of 64 positions, one chunk each.
int64_t DefaultStretch(SequenceSplit split, int64_t ranks);

}  // namespace trivet::plan
