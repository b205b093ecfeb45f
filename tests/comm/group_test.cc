// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <mutex>
#include <random>

#include "base/clock.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using testing::HasSubstr;

constexpr int64_t kHangUs = 200000;    // the timeout of tests that wait for it
constexpr int64_t kLimitUs = 2000000;  // what is promised: all stop within two seconds

// What the ranks of a test returned.
struct Outcomes {
  explicit Outcomes(int64_t ranks) : statuses(static_cast<size_t>(ranks)), ended_us(statuses.size(), 0) {}
  void Set(int64_t rank, Status status) {
    statuses[static_cast<size_t>(rank)] = std::move(status);
    ended_us[static_cast<size_t>(rank)] = NowUs();
  }
  void ExpectAllFailed(const std::string& cause, int64_t since_us, int64_t except = -1) const {
    for (size_t rank = 0; rank < statuses.size(); ++rank) {
      if (static_cast<int64_t>(rank) == except) continue;
      ASSERT_FALSE(statuses[rank].ok()) << rank;
      EXPECT_EQ(statuses[rank].error().code, Code::kPeer);
      EXPECT_THAT(statuses[rank].error().message, HasSubstr(cause)) << rank;
      EXPECT_LT(ended_us[rank] - since_us, kLimitUs) << rank;
    }
  }
  std::vector<Status> statuses;
  std::vector<int64_t> ended_us;
};

void SleepUs(int64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

TEST(GroupMake, RefusesCountsOutsideTheRange) {
  for (const int64_t ranks : {-1, 0, 17, 1000000}) {
    GroupOptions options;
    options.ranks = ranks;
    const Result<std::unique_ptr<Group>> group = Group::Make(options);
    ASSERT_FALSE(group.ok()) << ranks;
    EXPECT_EQ(group.error().code, Code::kUsage);
    EXPECT_THAT(group.error().message, HasSubstr("found " + std::to_string(ranks)));
  }
}

TEST(Group, SlotsAreApartAndAligned) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  std::vector<std::byte*> slots;
  for (const int64_t parity : {0, 1}) {
    for (int64_t rank = 0; rank < 3; ++rank) slots.push_back(group->slot(rank, parity));
    slots.push_back(group->result(parity));
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slots[i]) % 64, 0U);
    std::fill_n(slots[i], kSlotBytes, std::byte(i + 1));
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_TRUE(std::all_of(slots[i], slots[i] + kSlotBytes, [&](std::byte byte) { return byte == std::byte(i + 1); }));
  }
  EXPECT_FALSE(group->aborted()) << "the control block was overwritten";
}

TEST(Group, ReportsAreReadByOthers) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  group->set_report(1, 6);
  EXPECT_EQ(group->report(1), 6U);
  EXPECT_EQ(group->report(0), 0U);
}

// After its n-th barrier a rank finds that every rank has come to it n times and nobody more than once further.
TEST(Barrier, NobodyPassesBeforeAllHaveCome) {
  for (const int64_t ranks : kRankCounts) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    std::vector<std::atomic<int64_t>> arrived(static_cast<size_t>(ranks));
    RunThreads(ranks, [&](int64_t rank) {
      std::mt19937 random(static_cast<uint32_t>(rank));
      for (int64_t round = 1; round <= 300; ++round) {
        if (random() % 40 == 0) SleepUs(random() % 300);
        arrived[static_cast<size_t>(rank)].store(round);
        ASSERT_TRUE(group->Barrier(rank, round % 3 == 0).ok());
        for (const auto& other : arrived) {
          const int64_t seen = other.load();
          ASSERT_TRUE(seen == round || seen == round + 1) << "round " << round << ", seen " << seen;
        }
      }
    });
  }
}

TEST(Barrier, AbortReachesRanksThatWaitAndRanksThatCome) {
  for (const bool patient : {false, true}) {
    const std::unique_ptr<Group> group = MakeGroup(4);
    Outcomes outcomes(4);
    std::atomic<int64_t> aborted_us{0};
    RunThreads(4, [&](int64_t rank) {
      if (rank == 2) {
        SleepUs(30000);
        aborted_us = NowUs();
        group->Abort("rank 2: the disk broke");
        group->Abort("rank 2: a later cause");
      }
      if (rank == 3) SleepUs(60000);
      outcomes.Set(rank, group->Barrier(rank, patient));
      EXPECT_FALSE(group->Barrier(rank, patient).ok()) << "an aborted group stays aborted";
    });
    outcomes.ExpectAllFailed("rank 2: the disk broke", aborted_us);
    EXPECT_EQ(group->AbortError().message, "rank 2: the disk broke");
  }
}

TEST(Barrier, ACauseKeepsItsCode) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  group->Abort("rank 1: a damaged file", Code::kInvalid);
  EXPECT_EQ(group->AbortError().code, Code::kInvalid);
  EXPECT_EQ(group->Barrier(0).error().code, Code::kInvalid);
}

TEST(Barrier, OfManyCausesOneStaysAndAllRanksNameIt) {
  const std::unique_ptr<Group> group = MakeGroup(8);
  std::vector<std::string> causes(8);
  RunThreads(8, [&](int64_t rank) {
    group->Abort("cause of rank " + std::to_string(rank));
    while (!group->aborted()) std::this_thread::yield();
    causes[static_cast<size_t>(rank)] = group->AbortError().message;
  });
  EXPECT_THAT(causes[0], HasSubstr("cause of rank "));
  EXPECT_EQ(causes, std::vector<std::string>(8, causes[0]));
}

TEST(Abort, CutsALongCause) {
  const std::unique_ptr<Group> group = MakeGroup(1);
  group->Abort(std::string(5000, 'x'));
  EXPECT_EQ(group->AbortError().message.substr(0, 100), std::string(100, 'x'));
  EXPECT_LT(group->AbortError().message.size(), 2000U);
}

TEST(Barrier, ARankThatHangsIsNamed) {
  const std::unique_ptr<Group> group = MakeGroup(4, kHangUs);
  Outcomes outcomes(4);
  const int64_t start = NowUs();
  RunThreads(4, [&](int64_t rank) {
    while (rank == 1 && !group->aborted()) SleepUs(1000);
    outcomes.Set(rank, group->Barrier(rank));
  });
  outcomes.ExpectAllFailed("rank 1: expected progress within 0.2 s", start);
  EXPECT_GE(outcomes.ended_us[0] - start, kHangUs * 9 / 10) << "given up too early";
}

TEST(Barrier, ARankThatMakesProgressIsWaitedFor) {
  const std::unique_ptr<Group> group = MakeGroup(3, kHangUs);
  RunThreads(3, [&](int64_t rank) {
    for (int i = 0; rank == 2 && i < 20; ++i) {
      SleepUs(kHangUs / 10);
      group->progress(rank).fetch_add(1);
    }
    const Status status = group->Barrier(rank);
    EXPECT_TRUE(status.ok()) << status.error().message;
  });
}

TEST(Barrier, PatientRanksWaitForOneThatShowsNothing) {
  const std::unique_ptr<Group> group = MakeGroup(3, kHangUs);
  RunThreads(3, [&](int64_t rank) {
    if (rank == 0) SleepUs(2 * kHangUs);
    const Status status = group->Barrier(rank, true);
    EXPECT_TRUE(status.ok()) << status.error().message;
  });
}

TEST(Barrier, ManyHungRanksAreOneCause) {
  const std::unique_ptr<Group> group = MakeGroup(5, kHangUs);
  Outcomes outcomes(5);
  const int64_t start = NowUs();
  RunThreads(5, [&](int64_t rank) {
    while (rank >= 3 && !group->aborted()) SleepUs(1000);
    outcomes.Set(rank, group->Barrier(rank));
  });
  outcomes.ExpectAllFailed("it hangs", start);
  for (const Status& status : outcomes.statuses)
    EXPECT_EQ(status.error().message, outcomes.statuses[0].error().message);
}

TEST(Barrier, TheWatchIsAskedWhileWaitingAlsoPatiently) {
  for (const bool patient : {false, true}) {
    const std::unique_ptr<Group> group = MakeGroup(2);
    std::atomic<bool> dead{false};
    group->set_watch([&]() -> std::optional<std::string> {
      if (dead) return "rank 1: its process is gone";
      return std::nullopt;
    });
    const int64_t start = NowUs();
    std::thread killer([&] {
      SleepUs(50000);
      dead = true;
    });
    const Status status = group->Barrier(0, patient);
    killer.join();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "rank 1: its process is gone");
    EXPECT_LT(NowUs() - start, kLimitUs);
  }
}

TEST(BarrierProcesses, MeetAndShareMemory) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  const std::vector<int> statuses = WaitProcesses(StartProcesses(3, [&](int64_t rank) {
    for (int64_t round = 0; round < 300; ++round) {
      const int64_t parity = round & 1;
      *reinterpret_cast<int64_t*>(group->slot(rank, parity)) = round * 10 + rank;
      if (!group->Barrier(rank).ok()) return false;
      for (int64_t peer = 0; peer < 3; ++peer) {
        if (*reinterpret_cast<int64_t*>(group->slot(peer, parity)) != round * 10 + peer) return false;
      }
    }
    return true;
  }));
  EXPECT_EQ(statuses, std::vector<int>(3, 0));
}

TEST(BarrierProcesses, AKilledRankIsNamedByTheOthers) {
  const std::unique_ptr<Group> group = MakeGroup(3, kHangUs);
  const int64_t start = NowUs();
  const std::vector<pid_t> children = StartProcesses(3, [&](int64_t rank) {
    if (rank == 1) ::raise(SIGKILL);
    const Status status = group->Barrier(rank);
    return !status.ok() && status.error().message.starts_with("rank 1: ");
  });
  const std::vector<int> statuses = WaitProcesses(children);
  EXPECT_LT(NowUs() - start, kLimitUs);
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
  EXPECT_EQ(statuses[2], 0);
  ASSERT_TRUE(group->aborted());
  EXPECT_THAT(group->AbortError().message, HasSubstr("rank 1: "));
}

// A job that is stopped and continued (a shell's Ctrl-Z, a paused virtual machine) loses time on every rank alike.
TEST(BarrierProcesses, StoppingAndContinuingTheWholeJobIsNoHang) {
  const std::unique_ptr<Group> group = MakeGroup(3, kHangUs);
  const std::vector<pid_t> children = StartProcesses(3, [&](int64_t rank) {
    // Rank 2 works for longer than the stop, showing progress while it runs.
    for (int i = 0; rank == 2 && i < 10; ++i) {
      SleepUs(30000);
      group->progress(rank).fetch_add(1);
    }
    return group->Barrier(rank).ok();
  });
  SleepUs(100000);
  for (const pid_t child : children) ::kill(child, SIGSTOP);
  SleepUs(2 * kHangUs);
  // The rank that is waited for comes back last.
  for (const pid_t child : children) {
    if (child == children[2]) SleepUs(kHangUs / 4);
    ::kill(child, SIGCONT);
  }
  EXPECT_EQ(WaitProcesses(children), std::vector<int>(3, 0))
      << (group->aborted() ? group->AbortError().message : "no cause");
}

// Parts have barriers and slots of their own, and fail with the whole.
TEST(Part, HasBarriersAndSlotsOfItsOwn) {
  const std::unique_ptr<Group> group = MakeGroup(5);
  Group* even = group->MakePart({0, 2, 4}).value();
  Group* odd = group->MakePart({1, 3}).value();
  EXPECT_EQ(even->ranks(), 3);
  EXPECT_EQ(even->InWhole(2), 4);
  EXPECT_EQ(&even->progress(1), &group->progress(2));
  EXPECT_NE(even->slot(0, 0), group->slot(0, 0));
  odd->set_report(1, 6);
  EXPECT_EQ(group->report(3), 6U);
  RunThreads(5, [&](int64_t rank) {
    Group* mine = rank % 2 == 0 ? even : odd;
    for (int64_t round = 0; round < 100 * (1 + rank % 2); ++round) ASSERT_TRUE(mine->Barrier(rank / 2).ok());
    ASSERT_TRUE(group->Barrier(rank).ok());
  });
}

TEST(Part, AnAbortOfAnyIsOneOfAll) {
  for (const int64_t aborter : {0, 1, 2}) {
    const std::unique_ptr<Group> group = MakeGroup(4);
    Group* first = group->MakePart({0, 1}).value();
    Group* second = group->MakePart({2, 3}).value();
    Outcomes outcomes(4);
    const int64_t start = NowUs();
    RunThreads(4, [&](int64_t rank) {
      Group* mine = rank < 2 ? first : second;
      if (rank == 3) {
        SleepUs(30000);
        (aborter == 0 ? group.get() : aborter == 1 ? first : second)->Abort("rank 3: gave up");
      }
      outcomes.Set(rank, rank == 0 ? group->Barrier(rank) : mine->Barrier(rank % 2));
    });
    outcomes.ExpectAllFailed("rank 3: gave up", start);
  }
}

// Rank 0 waits for 1, 1 for 2, and 2 hangs: it is 2 that is named, by its number in the whole.
TEST(Part, OfAChainOfWaitsTheOneThatHangsIsNamed) {
  const std::unique_ptr<Group> group = MakeGroup(4, kHangUs);
  Group* part = group->MakePart({1, 2}).value();
  Outcomes outcomes(4);
  const int64_t start = NowUs();
  RunThreads(4, [&](int64_t rank) {
    std::vector<std::byte> bytes(8);
    if (rank == 0) outcomes.Set(rank, group->Take(0, 1, bytes));
    if (rank == 1) outcomes.Set(rank, part->Barrier(0));
    while (rank == 2 && !group->aborted()) SleepUs(1000);
    if (rank > 1) outcomes.Set(rank, group->Barrier(rank));
  });
  outcomes.ExpectAllFailed("rank 2: expected progress within 0.2 s", start);
}

// One rank hands pieces to several in turn, which come at their own pace: each gets its own, in order.
TEST(Put, PiecesReachThoseTheyAreFor) {
  for (const bool processes : {false, true}) {
    constexpr int64_t kRanks = 4, kPieces = 600;
    const std::unique_ptr<Group> group = MakeGroup(kRanks);
    const auto to = [](int64_t piece) { return 1 + (piece * piece + piece / 7) % (kRanks - 1); };
    const auto body = [&](int64_t rank) {
      std::mt19937 random(static_cast<uint32_t>(rank));
      for (int64_t piece = 0; piece < kPieces; ++piece) {
        if (random() % 50 == 0) SleepUs(random() % 500);
        if (rank == 0) {
          const std::vector<int64_t> values(static_cast<size_t>(1 + piece % 90), piece);
          EXPECT_TRUE(group->Put(0, to(piece), std::as_bytes(std::span(values))).ok());
        } else if (rank == to(piece)) {
          std::vector<int64_t> values(static_cast<size_t>(1 + piece % 90));
          EXPECT_TRUE(group->Take(rank, 0, std::as_writable_bytes(std::span(values))).ok());
          EXPECT_EQ(values, std::vector<int64_t>(values.size(), piece)) << "rank " << rank;
        }
      }
      return true;
    };
    if (processes) {
      for (const int status : WaitProcesses(StartProcesses(kRanks, body))) EXPECT_EQ(status, 0);
    } else {
      RunThreads(kRanks, body);
    }
  }
}

}  // namespace
}  // namespace trivet::comm
