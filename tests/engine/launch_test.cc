// SPDX-License-Identifier: Apache-2.0
#include "engine/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/communicator.h"

namespace trivet::engine {
namespace {

using testing::HasSubstr;

TEST(ParseLaunch, KnowsItsWords) {
  EXPECT_EQ(ParseLaunch("threads").value(), Launch::kThreads);
  EXPECT_EQ(ParseLaunch("processes").value(), Launch::kProcesses);
  for (const char* text : {"", "thread", "Threads", "threads "}) {
    const Result<Launch> launch = ParseLaunch(text);
    ASSERT_FALSE(launch.ok());
    EXPECT_EQ(launch.error().code, Code::kUsage);
    EXPECT_THAT(launch.error().message, HasSubstr("--launch: expected threads or processes"));
  }
}

class RanksTest : public testing::TestWithParam<Launch> {
 protected:
  static std::unique_ptr<comm::Group> GroupOf(int64_t ranks) {
    auto group = comm::Group::Make({.ranks = ranks, .hang_timeout_us = 300000});
    CHECK(group.ok());
    return std::move(group).value();
  }
};

TEST_P(RanksTest, EveryRankRunsTheBody) {
  const auto group = GroupOf(4);
  const auto ranks = Ranks::Start(GetParam(), group.get(), [&](int64_t rank) -> Status {
    comm::Communicator comm(group.get(), rank);
    std::vector<int64_t> one(4);
    one[static_cast<size_t>(rank)] = rank + 1;
    return comm.AllReduce(std::span(one));
  });
  ASSERT_TRUE(ranks.ok());
  comm::Communicator comm(group.get(), 0);
  std::vector<int64_t> all = {1, 0, 0, 0};
  ASSERT_TRUE(comm.AllReduce(std::span(all)).ok());
  EXPECT_EQ(all, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_TRUE((*ranks)->Join());
  EXPECT_FALSE(group->aborted());
}

TEST_P(RanksTest, AnErrorIsTheGroupsCause) {
  const auto group = GroupOf(3);
  const auto ranks = Ranks::Start(GetParam(), group.get(), [&](int64_t rank) -> Status {
    if (rank == 2) return MakeError(Code::kIo, "rank 2: no disk");
    return group->Barrier(rank);
  });
  ASSERT_TRUE(ranks.ok());
  const Status waited = group->Barrier(0);
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().code, Code::kIo);
  EXPECT_EQ(waited.error().message, "rank 2: no disk");
  EXPECT_TRUE((*ranks)->Join());
}

TEST_P(RanksTest, ALibrarysExceptionIsTheGroupsCause) {
  const auto group = GroupOf(2);
  const auto ranks = Ranks::Start(GetParam(), group.get(),
                                  [](int64_t) -> Status { return std::string().at(5) == 'x' ? Status() : Status(); });
  ASSERT_TRUE(ranks.ok());
  const Status waited = group->Barrier(0);
  ASSERT_FALSE(waited.ok());
  EXPECT_THAT(waited.error().message, HasSubstr("rank 1: expected to run, found: "));
}

INSTANTIATE_TEST_SUITE_P(Launches, RanksTest, testing::Values(Launch::kThreads, Launch::kProcesses));

TEST(Ranks, AProcessThatExitsIsNoticed) {
  auto group = comm::Group::Make({.ranks = 2});
  ASSERT_TRUE(group.ok());
  const auto ranks = Ranks::Start(Launch::kProcesses, group->get(), [](int64_t) -> Status { ::_exit(7); });
  ASSERT_TRUE(ranks.ok());
  for (int i = 0; i < 1000 && !(*group)->aborted(); ++i) {
    (*ranks)->Watch();
    ::usleep(2000);
  }
  ASSERT_TRUE((*group)->aborted());
  EXPECT_THAT((*group)->AbortError().message, HasSubstr("found it ended with status 7"));
}

TEST(Ranks, AProcessThatStaysIsKilledAfterASecond) {
  auto group = comm::Group::Make({.ranks = 2});
  ASSERT_TRUE(group.ok());
  auto ranks = Ranks::Start(Launch::kProcesses, group->get(), [](int64_t) -> Status {
    while (true) ::pause();
  });
  ASSERT_TRUE(ranks.ok());
  const int64_t begin = NowUs();
  EXPECT_TRUE((*ranks)->Join());
  EXPECT_GE(NowUs() - begin, 900000);
  EXPECT_LT(NowUs() - begin, 2000000);
}

}  // namespace
}  // namespace trivet::engine
