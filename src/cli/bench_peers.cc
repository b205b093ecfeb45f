// SPDX-License-Identifier: Apache-2.0
// What the link between every two ranks carries: a word back and forth, and bytes written and read; and what a rank
// writes to all others at once.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/futex.h"
#include "base/json.h"
#include "cli/bench_group.h"
#include "device/buffer.h"

namespace trivet::cli {
namespace {

constexpr uint32_t kWords = 300;  // there and back, of one measurement
constexpr int64_t kCopies = 40;
constexpr int64_t kRounds = 5;

// One pair, seen from `from`.
struct Link {
  double word_us = 1e30;       // one way
  double write = 0, read = 0;  // bytes per second
};

// Ranks on the processor: their memory is one, and a word is a cache line of the slots. Every word is progress, since
// the ranks that wait for this pair judge it by that.
void PassWords(comm::Group& group, int64_t me, int64_t peer, uint32_t first) {
  constexpr int kSpins = 2000;  // some tens of microseconds; then the other may need this core
  const auto word = [&](int64_t of, int64_t from) {
    return std::atomic_ref(*reinterpret_cast<uint32_t*>(group.slot(of, 1) + from * 64));
  };
  for (uint32_t i = first; i < first + kWords; ++i) {
    const auto wait = [&] {
      for (int spins = 0; word(me, peer).load(std::memory_order_acquire) != i && !group.aborted(); ++spins) {
        spins < kSpins ? SpinPause() : std::this_thread::yield();
      }
      group.progress(me).fetch_add(1, std::memory_order_relaxed);
    };
    if (me > peer) wait();
    word(peer, me).store(i, std::memory_order_release);
    if (me < peer) wait();
  }
}

// Seconds of `work`, which has happened when this returns.
Result<double> Seconds(const GroupRank& rank, const std::function<void()>& work) {
  const int64_t begin = NowUs();
  work();
  TRY(rank.comm.Wait());
  return static_cast<double>(std::max<int64_t>(1, NowUs() - begin)) * 1e-6;
}

class Prober {
 public:
  explicit Prober(const GroupRank& rank) : rank_(rank), copy_(rank.device.backend() == Backend::kCpu ? 1 << 20 : 0) {}

  Result<Link> Measure(int64_t from, int64_t to) {
    const int64_t me = rank_.comm.rank();
    Link link;
    for (int64_t round = 0; round < kRounds; ++round) {
      TRY(rank_.comm.Barrier());
      if (me == from || me == to) {
        const int64_t other = me == from ? to : from;
        TRY_ASSIGN(const double s, Seconds(rank_, [&] { Words(other); }));
        link.word_us = std::min(link.word_us, s / kWords / 2 * 1e6);
      }
      first_ += kWords;
      TRY(rank_.comm.Barrier());
      if (me == from) {
        TRY_ASSIGN(const double write, Seconds(rank_, [&] { Copy(to, true); }));
        TRY_ASSIGN(const double read, Seconds(rank_, [&] { Copy(to, false); }));
        const auto bytes = static_cast<double>(kCopies * Bytes());
        link.write = std::max(link.write, bytes / write);
        link.read = std::max(link.read, bytes / read);
      }
    }
    TRY(rank_.comm.Barrier());
    return link;
  }

  Result<double> WriteToAll(int64_t from) {
    double rate = 0;
    for (int64_t round = 0; round < kRounds; ++round) {
      TRY(rank_.comm.Barrier());
      if (rank_.comm.rank() != from) continue;
      TRY_ASSIGN(const double s, Seconds(rank_, [&] { CopyToAll(); }));
      rate = std::max(rate, static_cast<double>(kCopies * Bytes() * (rank_.comm.size() - 1)) / s);
    }
    TRY(rank_.comm.Barrier());
    return rate;
  }

 private:
  bool gpu() const { return rank_.device.backend() != Backend::kCpu; }
  int64_t Bytes() const { return gpu() ? comm::kPeerPieceBytes : static_cast<int64_t>(copy_.size()); }

  void Words(int64_t other) {
    if (gpu()) {
      comm::cuda::PingPong(rank_.comm.peer()->peers(), other, first_, kWords);
    } else {
      PassWords(rank_.group, rank_.comm.rank(), other, first_);
    }
  }

  void Copy(int64_t to, bool write) {
    for (int64_t i = 0; i < kCopies; ++i) {
      if (gpu()) {
        const comm::cuda::Peers& peers = rank_.comm.peer()->peers();
        write ? comm::cuda::Push(peers, to) : comm::cuda::Pull(peers, to);
      } else {
        std::byte* there = rank_.group.slot(to, 0);
        write ? std::memcpy(there, copy_.data(), copy_.size()) : std::memcpy(copy_.data(), there, copy_.size());
      }
    }
  }

  void CopyToAll() {
    for (int64_t i = 0; i < kCopies; ++i) {
      if (gpu()) {
        comm::cuda::PushAll(rank_.comm.peer()->peers());
        continue;
      }
      for (int64_t to = 0; to < rank_.comm.size(); ++to) {
        if (to != rank_.comm.rank()) std::memcpy(rank_.group.slot(to, 0), copy_.data(), copy_.size());
      }
    }
  }

  const GroupRank rank_;
  std::vector<std::byte> copy_;
  uint32_t first_ = 1;
};

Status Execute(const GroupFlags& flags) {
  return RunGroup(flags, [&](const GroupRank& rank) -> Status {
    if (rank.device.backend() != Backend::kCpu && rank.comm.peer() == nullptr) {
      return MakeError(Code::kUnsupported, "p2p: expected GPUs that reach each other, found: " + rank.comm.detour());
    }
    Prober prober(rank);
    for (int64_t from = 0; from < rank.comm.size(); ++from) {
      for (int64_t to = 0; to < rank.comm.size(); ++to) {
        if (from == to) continue;
        TRY_ASSIGN(const Link link, prober.Measure(from, to));
        if (rank.comm.rank() != from) continue;
        if (flags.json) {
          std::puts(DumpJson({{"from", from},
                              {"to", to},
                              {"word_us", link.word_us},
                              {"write_bytes_per_s", link.write},
                              {"read_bytes_per_s", link.read}})
                        .c_str());
        } else {
          std::printf("rank %2ld to %2ld   a word %6.2f us   writes %7.1f GB/s   reads %7.1f GB/s\n", from, to,
                      link.word_us, link.write * 1e-9, link.read * 1e-9);
        }
        std::fflush(stdout);
      }
    }
    TRY_ASSIGN(const std::vector<double> rates, WriteRates(rank));
    for (int64_t from = 0; from < rank.comm.size() && rank.comm.rank() == 0; ++from) {
      const double rate = rates[static_cast<size_t>(from)];
      if (flags.json) {
        std::puts(DumpJson({{"from", from}, {"to", "all"}, {"write_bytes_per_s", rate}}).c_str());
      } else {
        std::printf("rank %2ld to all others at once    writes %7.1f GB/s\n", from, rate * 1e-9);
      }
    }
    return {};
  });
}

}  // namespace

Result<std::vector<double>> WriteRates(const GroupRank& rank) {
  const auto ranks = static_cast<size_t>(rank.comm.size());
  if (rank.device.backend() != Backend::kCpu && rank.comm.peer() == nullptr) return std::vector<double>(ranks, 1);
  Prober prober(rank);
  std::vector<int64_t> rates(ranks);
  for (size_t from = 0; from < ranks; ++from) {
    TRY_ASSIGN(const double rate, prober.WriteToAll(static_cast<int64_t>(from)));
    rates[from] = static_cast<int64_t>(rate);  // 0 on all others: their sum is what `from` has measured
  }
  const auto bytes = static_cast<int64_t>(ranks * sizeof(int64_t));
  TRY_ASSIGN(device::Buffer buffer, device::Buffer::Make(rank.device, bytes, "rates"));
  rank.device.Upload(buffer.data(), rates.data(), bytes);
  TRY(rank.comm.AllReduce(buffer.As<int64_t>().first(ranks)));
  TRY(rank.comm.Wait());
  rank.device.Download(rates.data(), buffer.data(), bytes);
  return std::vector<double>(rates.begin(), rates.end());
}

std::function<Status()> AddBenchPeers(CLI::App* app) {
  auto flags = std::make_shared<GroupFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  flags->Add(app);
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
