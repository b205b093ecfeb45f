// SPDX-License-Identifier: Apache-2.0
// The order in which a rank makes a two-shot sum through memory of the host. The communicator and the tests that walk
// all interleavings take it from here.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace trivet::comm {

/// One rank's steps of a sum in `pieces` pieces, which use slots and results of alternating parity: a rank shows its
/// part of the next piece before it waits for the totals of this one, so that there is one wait a piece and one more.
/// Between two waits nobody writes what another reads: parts of the piece after next and its totals go where those of
/// this piece are, and whoever has come to the wait after this piece has read them.
///   show   brings this rank's part of a piece into its slot
///   meet   waits for all ranks
///   add    adds this rank's share of a piece, from all slots, to the result
///   bring  takes the total of a piece from the result
/// Errors:  those of meet.
template <class Show, class Meet, class Add, class Bring>
Status SumPieces(int64_t pieces, const Show& show, const Meet& meet, const Add& add, const Bring& bring) {
  if (pieces == 0) return {};
  show(int64_t{0});
  TRY(meet());
  for (int64_t piece = 0; piece < pieces; ++piece) {
    add(piece);
    if (piece + 1 < pieces) show(piece + 1);
    TRY(meet());
    bring(piece);
  }
  return {};
}

}  // namespace trivet::comm
