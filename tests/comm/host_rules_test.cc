// SPDX-License-Identifier: Apache-2.0
// Sums through memory of the host in every order in which the steps of ranks can follow each other. A step is one
// rank's access to one slot or one share of a result.
#include "comm/host_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace trivet::comm {
namespace {

// A call: one-shot, or by shares in so many pieces, of which some ranks may have none.
struct HostCall {
  int64_t pieces = 0;  // 0: one-shot
  bool idle_last = false;
};

enum class HostMistake {
  kNone,
  kOneParity,     // all pieces use the same slots and results
  kShowsTooSoon,  // a rank shows the piece after next before it waits
};

class HostModel {
 public:
  HostModel(size_t ranks, const std::vector<HostCall>& calls, HostMistake mistake) : ranks_(ranks), mistake_(mistake) {
    for (size_t rank = 0; rank < ranks; ++rank) programs_.push_back(Program(rank, calls));
    start_.assign(ranks + 4 * ranks, 0);
  }

  // The first thing that goes wrong in some order, or "".
  std::string Walk() {
    std::vector<State> open = {start_};
    std::set<State> seen = {start_};
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      bool ended = true, moved = false;
      for (size_t rank = 0; rank < ranks_; ++rank) {
        if (state[rank] == programs_[rank].size()) continue;
        ended = false;
        State next = state;
        const Op& op = programs_[rank][state[rank]];
        if (!Act(&next, rank, op)) continue;
        if (wrong_) return "a rank reads what is of another piece, or not there yet";
        moved = true;
        if (seen.insert(next).second) open.push_back(next);
      }
      if (!ended && !moved) return "all wait for each other";
    }
    states_ = seen.size();
    return "";
  }
  size_t states() const { return states_; }

 private:
  using State = std::vector<size_t>;  // every rank's place in its program, then its two slots and two shares of results
  enum Action { kShow, kMeet, kReadSlot, kTotal, kReadTotal };
  struct Op {
    Action action;
    size_t whose = 0, parity = 0, mark = 0;
  };

  std::vector<Op> Program(size_t rank, const std::vector<HostCall>& calls) const {
    std::vector<Op> ops;
    size_t count = 0;  // pieces so far
    for (const HostCall& call : calls) {
      const size_t first = count;
      const auto op = [&](Action action, size_t whose, int64_t piece) {
        const size_t number = first + static_cast<size_t>(piece);
        ops.push_back({action, whose, mistake_ == HostMistake::kOneParity ? 0 : number & 1, number + 1});
      };
      const auto all = [&](Action action, int64_t piece, size_t ranks) {
        for (size_t from = 0; from < ranks; ++from) op(action, from, piece);
      };
      const auto meet = [&]() -> Status {
        ops.push_back({kMeet});
        return {};
      };
      if (call.pieces == 0) {
        op(kShow, rank, 0);
        EXPECT_TRUE(meet().ok());
        all(kReadSlot, 0, ranks_);
        ++count;
        continue;
      }
      const size_t sharing = call.idle_last ? ranks_ - 1 : ranks_;
      const auto show = [&](int64_t piece) {
        const int64_t ahead = mistake_ == HostMistake::kShowsTooSoon && piece + 1 < call.pieces ? 1 : 0;
        op(kShow, rank, piece);
        if (ahead > 0) op(kShow, rank, piece + ahead);
      };
      const auto add = [&](int64_t piece) {
        if (rank >= sharing) return;
        all(kReadSlot, piece, ranks_);
        op(kTotal, rank, piece);
      };
      EXPECT_TRUE(
          SumPieces(call.pieces, show, meet, add, [&](int64_t piece) { all(kReadTotal, piece, sharing); }).ok());
      count += static_cast<size_t>(call.pieces);
    }
    return ops;
  }

  // What a step does; false when it has to wait.
  bool Act(State* state, size_t rank, const Op& op) {
    State& s = *state;
    size_t& slot = s[ranks_ + 4 * op.whose + op.parity];
    size_t& total = s[ranks_ + 4 * op.whose + 2 + op.parity];
    switch (op.action) {
      case kShow:
        slot = op.mark;
        break;
      case kMeet: {
        // All go on together when the last has come.
        const auto meets = [&](size_t peer) {
          return std::count_if(programs_[peer].begin(), programs_[peer].begin() + static_cast<int64_t>(s[peer]),
                               [](const Op& done) { return done.action == kMeet; });
        };
        for (size_t peer = 0; peer < ranks_; ++peer) {
          const bool here = s[peer] < programs_[peer].size() && programs_[peer][s[peer]].action == kMeet;
          if (meets(peer) < meets(rank) || (meets(peer) == meets(rank) && !here)) return false;
        }
        break;
      }
      case kReadSlot:
        wrong_ = wrong_ || slot != op.mark;
        break;
      case kTotal:
        total = op.mark;
        break;
      case kReadTotal:
        wrong_ = wrong_ || total != op.mark;
        break;
    }
    ++s[rank];
    return true;
  }

  const size_t ranks_;
  const HostMistake mistake_;
  std::vector<std::vector<Op>> programs_;
  State start_;
  bool wrong_ = false;
  size_t states_ = 0;
};

std::vector<std::vector<HostCall>> HostHistories() {
  return {{{3}, {1}, {2}},
          {{0}, {2}, {0}, {0}, {1}},
          {{1}, {1}, {0}, {3}},
          {{4, true}, {0}, {2, true}, {1}},
          {{0}, {1}, {1, true}, {0}, {2}}};
}

TEST(SumPieces, IsRightInEveryOrder) {
  for (const size_t ranks : {2, 3}) {
    size_t states = 0;
    for (const std::vector<HostCall>& calls : HostHistories()) {
      HostModel model(ranks, calls, HostMistake::kNone);
      EXPECT_EQ(model.Walk(), "") << ranks << " ranks";
      states += model.states();
    }
    EXPECT_GT(states, ranks == 2 ? 500U : 5000U);
  }
}

TEST(SumPieces, TheWalkFindsMistakes) {
  EXPECT_NE(HostModel(2, {{2}}, HostMistake::kOneParity).Walk(), "");
  EXPECT_NE(HostModel(2, {{0}, {0}}, HostMistake::kOneParity).Walk(), "");
  EXPECT_EQ(HostModel(2, {{1}, {1}}, HostMistake::kOneParity).Walk(), "") << "the second wait of a sum guards the next";
  EXPECT_NE(HostModel(2, {{3}}, HostMistake::kShowsTooSoon).Walk(), "");
}

TEST(SumPieces, WaitsOnceForAPieceAndOnceMore) {
  for (const int64_t pieces : {0, 1, 2, 7}) {
    int64_t meets = 0;
    const auto nothing = [](int64_t) {};
    const auto meet = [&]() -> Status {
      ++meets;
      return {};
    };
    EXPECT_TRUE(SumPieces(pieces, nothing, meet, nothing, nothing).ok());
    EXPECT_EQ(meets, pieces == 0 ? 0 : pieces + 1);
  }
}

// A wait that was given up ends the sum: nothing is read or written after it.
TEST(SumPieces, EndsWithTheWaitThatFails) {
  int64_t meets = 0, brought = 0;
  const auto nothing = [](int64_t) {};
  const Status status = SumPieces(
      5, nothing,
      [&]() -> Status {
        if (++meets == 3) return MakeError(Code::kPeer, "rank 1: had enough");
        return {};
      },
      nothing, [&](int64_t) { ++brought; });
  EXPECT_EQ(status.error().message, "rank 1: had enough");
  EXPECT_EQ(meets, 3);
  EXPECT_EQ(brought, 1);
}

}  // namespace
}  // namespace trivet::comm
