// SPDX-License-Identifier: Apache-2.0
// A model of ranks that exchange by the rules of comm/peer_rules.h, and a walk over every order in which their steps
// can follow each other. A step is one access to memory that another rank sees.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "comm/peer_rules.h"

namespace trivet::comm {

/// What a call is, how many blocks it runs, and how many words each block sends to a peer, in each chunk of a two-shot
/// call; of that, how many chunks it has, and whether the last rank has no share.
struct ModelCall {
  enum Kind { kOneShot, kTwoShot, kGather, kNorm } kind;
  uint32_t blocks;
  uint32_t words = 1;
  uint32_t chunks = 1;
  bool idle_last = false;
};

/// Mistakes that the walk has to find.
enum class Mistake {
  kNone,
  kOwnCounters,    // a call moves on the counters of the blocks it has, and no others
  kOneHalf,        // all calls use the same half
  kGatherAsksOne,  // in a gather, ranks wait for rank 0 alone before they write
  kExactFlags,     // a flag that is one call ahead does not count
  kOneFlag,        // all chunks of a call have the same flags
};

/// Every rank makes the calls, one after another; the blocks of a call run side by side.
class PeerModel {
 public:
  PeerModel(uint32_t ranks, std::vector<ModelCall> calls, Mistake mistake, uint32_t epoch = 0)
      : ranks_(ranks), calls_(std::move(calls)), mistake_(mistake) {
    for (const ModelCall& call : calls_) blocks_ = std::max(blocks_, call.blocks);
    programs_.resize(ranks_);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      for (const ModelCall& call : calls_) {
        programs_[rank].emplace_back();
        for (uint32_t block = 0; block < call.blocks; ++block)
          programs_[rank].back().push_back(Program(rank, call, block));
      }
    }
    rank_words_ = Column(ranks_, 0);
    start_.assign(ranks_ * rank_words_, 0);
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      for (uint32_t block = 0; block < blocks_; ++block) start_[Counter(rank, block)] = epoch;
    }
  }

  /// The first thing that goes wrong in some order, or "" when nothing does in any.
  std::string Walk() {
    std::vector<State> open = {start_};
    std::unordered_set<uint64_t> seen = {Hash(start_)};
    while (!open.empty()) {
      const State state = std::move(open.back());
      open.pop_back();
      bool moved = false, ended = true;
      for (uint32_t rank = 0; rank < ranks_; ++rank) {
        const uint32_t call = state[Call(rank)];
        if (call == calls_.size()) continue;
        ended = false;
        for (uint32_t block = 0; block < calls_[call].blocks; ++block) {
          State next = state;
          if (!Step(&next, rank, block)) continue;
          if (!wrong_.empty()) return wrong_;
          moved = true;
          // A hash stands for the state: among 10^7 of them two are alike with a chance of 10^-5.
          if (seen.insert(Hash(next)).second) open.push_back(std::move(next));
        }
      }
      if (!moved && !ended) return "all wait for each other";
    }
    states_ = seen.size();
    return "";
  }

  /// States that a walk which found nothing has visited.
  size_t states() const { return states_; }

 private:
  using State = std::vector<uint32_t>;
  enum Action {
    kBegin,
    kSend,
    kTake,
    kPushPart,
    kTakePart,
    kPushTotal,
    kTakeTotal,
    kSignal,
    kAwait,
    kColumn,
    kRead,
    kEnd
  };
  struct Op {
    Action action;
    uint32_t peer = 0;
    uint32_t at = 0;  // a word; or a phase, and the chunk that it is of
  };
  static constexpr uint32_t kWords = 4, kChunks = 3;

  static constexpr uint32_t FlagOf(Phase phase, uint32_t chunk = 0) {
    return static_cast<uint32_t>(phase) * kChunks + chunk;
  }

  // What a block does in a call, after peer_cuda.cu and peer_norm_cuda.cu.
  std::vector<Op> Program(uint32_t rank, const ModelCall& call, uint32_t block) const {
    std::vector<Op> ops = {{kBegin}};
    const auto each = [&](Action action, uint32_t at) {
      for (uint32_t step = 1; step < ranks_; ++step) ops.push_back({action, (rank + step) % ranks_, at});
    };
    // The same action for each word of the block.
    const auto words = [&](auto action) {
      for (uint32_t i = 0; i < call.words; ++i) action(block + i * call.blocks);
    };
    if (call.kind == ModelCall::kOneShot) {
      for (const Action action : {kSend, kTake}) words([&](uint32_t at) { each(action, at); });
    } else if (call.kind == ModelCall::kNorm) {
      // A block adds other words than it sends.
      words([&](uint32_t at) { each(kSend, at); });
      words([&](uint32_t at) { each(kTake, at - block + (block + 1) % call.blocks); });
    } else if (call.kind == ModelCall::kTwoShot) {
      AddTwoShot(rank, call, block, &ops);
    } else {
      const bool ask_one = mistake_ == Mistake::kGatherAsksOne;
      if (!ask_one || rank == 0) each(kSignal, FlagOf(kBegun));
      if (!ask_one) each(kAwait, FlagOf(kBegun));
      if (ask_one && rank != 0) ops.push_back({kAwait, 0, FlagOf(kBegun)});
      words([&](uint32_t at) { ops.push_back({kColumn, 0, at}); });
      if (rank != 0) ops.push_back({kSignal, 0, FlagOf(kDone)});
      if (rank == 0) each(kAwait, FlagOf(kDone)), words([&](uint32_t at) { each(kRead, at); });
    }
    ops.push_back({kEnd});
    return ops;
  }

  void AddTwoShot(uint32_t rank, const ModelCall& call, uint32_t block, std::vector<Op>* ops) const {
    const auto shares = [&](uint32_t of) { return !call.idle_last || of + 1 < ranks_; };
    const auto words = [&](uint32_t chunk, auto action) {
      for (uint32_t i = 0; i < call.words; ++i) action(block + (chunk * call.words + i) * call.blocks);
    };
    const auto each = [&](Action action, uint32_t at, bool sharing) {
      for (uint32_t step = 1; step < ranks_; ++step) {
        const uint32_t peer = (rank + step) % ranks_;
        if (!sharing || shares(peer)) ops->push_back({action, peer, at});
      }
    };
    const auto flags = [&](Action action, Phase phase, uint32_t chunk) {
      const uint32_t flag = mistake_ == Mistake::kOneFlag ? 0 : chunk;
      each(action, FlagOf(phase, flag), false);
    };
    const auto push_parts = [&](uint32_t chunk) {
      words(chunk, [&](uint32_t at) { each(kPushPart, at, true); });
      flags(kSignal, kBegun, chunk);
    };
    const auto take_totals = [&](uint32_t chunk) {
      flags(kAwait, kDone, chunk);
      words(chunk, [&](uint32_t at) { each(kTakeTotal, at, true); });
    };
    push_parts(0);
    for (uint32_t chunk = 0; chunk < call.chunks; ++chunk) {
      if (chunk + 1 < call.chunks) push_parts(chunk + 1);
      flags(kAwait, kBegun, chunk);
      words(chunk, [&](uint32_t at) {
        if (shares(rank)) each(kTakePart, at, false), each(kPushTotal, at, false);
      });
      flags(kSignal, kDone, chunk);
      if (chunk > 0) take_totals(chunk - 1);
    }
    take_totals(call.chunks - 1);
  }

  // Where things stand in a state: every rank's place in its calls and blocks, then its memory.
  uint32_t Base(uint32_t rank) const { return rank * rank_words_; }
  uint32_t Call(uint32_t rank) const { return Base(rank); }
  uint32_t At(uint32_t rank, uint32_t block) const { return Base(rank) + 1 + block; }
  uint32_t Epoch(uint32_t rank, uint32_t block) const { return At(rank, blocks_) + block; }
  uint32_t Counter(uint32_t rank, uint32_t block) const { return Epoch(rank, blocks_) + block; }
  uint32_t Flag(uint32_t rank, uint32_t flag, uint32_t block, uint32_t from) const {
    return Counter(rank, blocks_) + (flag * blocks_ + block) * ranks_ + from;
  }
  uint32_t Packet(uint32_t rank, uint32_t half, uint32_t from, uint32_t word) const {
    return Flag(rank, kPhases * kChunks, 0, 0) + ((half * ranks_ + from) * kWords + word) * 2;
  }
  uint32_t Part(uint32_t rank, uint32_t half, uint32_t from, uint32_t word) const {
    return Packet(rank, 2, 0, 0) + (half * ranks_ + from) * kWords + word;
  }
  uint32_t Total(uint32_t rank, uint32_t half, uint32_t of, uint32_t word) const {
    return Part(rank, 2, 0, 0) + (half * ranks_ + of) * kWords + word;
  }
  uint32_t Column(uint32_t from, uint32_t word) const { return Total(0, 2, 0, 0) + from * kWords + word; }

  // One step of a block; false when it has ended or has to wait.
  bool Step(State* state, uint32_t rank, uint32_t block) {
    const std::vector<Op>& ops = programs_[rank][(*state)[Call(rank)]][block];
    uint32_t& at = (*state)[At(rank, block)];
    if (at == ops.size() || !Act(state, rank, block, ops[at])) return false;
    ++at;
    EndCall(state, rank);
    return true;
  }

  // What a step does to memory; false when it has to wait.
  bool Act(State* state, uint32_t rank, uint32_t block, const Op& op) {
    State& s = *state;
    const uint32_t call = s[Call(rank)], mark = call + 1;
    uint32_t& epoch = s[Epoch(rank, block)];
    const uint32_t half = mistake_ == Mistake::kOneHalf ? 0 : static_cast<uint32_t>(HalfOf(epoch));
    const auto expect = [&](uint32_t found, const char* what) {
      if (found == mark) return;
      wrong_ = "rank " + std::to_string(rank) + ", call " + std::to_string(mark) + ": " + what + " of call " +
               std::to_string(found);
    };
    switch (op.action) {
      case kBegin:
        epoch = NextEpoch(s[Counter(rank, block)]);
        break;
      case kSend:
        s[Packet(op.peer, half, rank, op.at)] = epoch;
        s[Packet(op.peer, half, rank, op.at) + 1] = mark;
        break;
      case kTake:
        if (s[Packet(rank, half, op.peer, op.at)] != epoch) return false;
        expect(s[Packet(rank, half, op.peer, op.at) + 1], "a packet");
        break;
      case kPushPart:
        s[Part(op.peer, half, rank, op.at)] = mark;
        break;
      case kTakePart:
        expect(s[Part(rank, half, op.peer, op.at)], "a part");
        break;
      case kPushTotal:
        s[Total(op.peer, half, rank, op.at)] = mark;
        break;
      case kTakeTotal:
        expect(s[Total(rank, half, op.peer, op.at)], "a total");
        break;
      case kSignal:
        s[Flag(op.peer, op.at, block, rank)] = epoch;
        break;
      case kAwait: {
        const uint32_t flag = s[Flag(rank, op.at, block, op.peer)];
        if (mistake_ == Mistake::kExactFlags ? flag != epoch : !HasCome(flag, epoch)) return false;
        break;
      }
      case kColumn:
        s[Column(rank, op.at)] = mark;
        break;
      case kRead:
        // The host reads after all blocks have ended; what a block brought is there from here on.
        expect(s[Column(op.peer, op.at)], "a column");
        break;
      case kEnd:
        for (int64_t i = block; i < blocks_; i = NextCounter(i, calls_[call].blocks)) {
          s[Counter(rank, static_cast<uint32_t>(i))] = epoch;
          if (mistake_ == Mistake::kOwnCounters) break;
        }
        break;
    }
    return true;
  }

  // A rank goes on to its next call when all blocks of this one have ended.
  void EndCall(State* state, uint32_t rank) const {
    uint32_t& call = (*state)[Call(rank)];
    for (uint32_t block = 0; block < calls_[call].blocks; ++block) {
      if ((*state)[At(rank, block)] < programs_[rank][call][block].size()) return;
    }
    for (uint32_t block = 0; block < blocks_; ++block) (*state)[At(rank, block)] = (*state)[Epoch(rank, block)] = 0;
    ++call;
  }

  static uint64_t Hash(const State& state) {
    uint64_t hash = 0;
    for (const uint32_t word : state) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash;
  }

  const uint32_t ranks_;
  const std::vector<ModelCall> calls_;
  const Mistake mistake_;
  uint32_t blocks_ = 0;
  uint32_t rank_words_ = 0;                                          // of one rank in a state
  std::vector<std::vector<std::vector<std::vector<Op>>>> programs_;  // by rank, call and block
  State start_;
  std::string wrong_;
  size_t states_ = 0;
};

}  // namespace trivet::comm
