// SPDX-License-Identifier: Apache-2.0
// How a sum is made changes none of its bits, and which form is taken is what was measured on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "comm/communicator.h"
#include "comm/wht6.h"
#include "tests/comm/parts.h"
#include "tests/comm/ranks.h"
#include "tests/io/temp_dir.h"
#include "tests/support/paths.h"

namespace trivet::comm {
namespace {

// What `trivet tune` finds may change times alone: wherever the forms cross, the bytes are the same.
template <class T>
void CompareForms() {
  for (const int64_t ranks : {2, 3, 5, 8}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunThreads(ranks, [&](int64_t rank) {
      Communicator comm(group.get(), rank);
      int64_t call = 0;
      for (const int64_t count : {int64_t{1}, ranks + 1, int64_t{4095}, int64_t{40001}}) {
        const std::vector<T> expected = Sum<T>(ranks, call, count);
        for (const Algorithm form : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kWeighted}) {
          comm.Insist(form);
          ReduceAndCompare(&comm, call, expected);
          EXPECT_EQ(comm.last().actual, AlgorithmName(form));
        }
        ++call;
      }
    });
  }
}

TEST(AllReduce, AllFormsGiveTheSameBytesAtEverySize) {
  CompareForms<int64_t>();
  CompareForms<float>();
  CompareForms<uint32_t>();
}

// Weights of a call, alike on all ranks: any, with ranks that have no share.
Weights WeightsOf(int64_t ranks, std::mt19937* random) {
  std::vector<int64_t> weights(static_cast<size_t>(ranks));
  for (int64_t& weight : weights) weight = (*random)() % 3 == 0 ? 0 : (*random)() % (Weights::kMost + 1);
  weights[(*random)() % weights.size()] = 1 + (*random)() % Weights::kMost;
  return Weights::Of(weights);
}

// Shares of any weights, sizes from one value to several pieces, all types and forms one after another, ranks that
// stall wherever they are.
void MixWeightedSums(Group* group, int64_t rank, int64_t calls) {
  const int64_t ranks = group->ranks();
  Communicator comm(group, rank);
  std::mt19937 alike(static_cast<uint32_t>(ranks)), own(static_cast<uint32_t>(rank));
  for (int64_t call = 0; call < calls; ++call) {
    comm.SetWeights(WeightsOf(ranks, &alike));
    comm.Insist(alike() % 4 == 0 ? Algorithm::kOneShot : Algorithm::kWeighted);
    const int64_t count = alike() % 3 == 0    ? 1 + static_cast<int64_t>(alike() % 40)
                          : alike() % 20 == 0 ? 60000 + static_cast<int64_t>(alike() % 90000)
                                              : 1 + static_cast<int64_t>(alike() % 3000);
    const uint32_t type = alike() % 3;
    if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 400));
    if (type == 0) {
      ReduceAndCompare<int64_t>(&comm, call, count);
    } else if (type == 1) {
      ReduceAndCompare<float>(&comm, call, count);
    } else {
      ReduceAndCompare<uint32_t>(&comm, call, count);
    }
  }
}

TEST(AllReduce, WeightsChangeNoBytes) {
  for (int64_t ranks = 2; ranks <= 8; ++ranks) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunThreads(ranks, [&](int64_t rank) { MixWeightedSums(group.get(), rank, 150); });
  }
}

TEST(AllReduce, WeightsChangeNoBytesBetweenProcesses) {
  for (const int64_t ranks : {3, 5}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    for (const int status : WaitProcesses(StartProcesses(ranks, [&](int64_t rank) {
           MixWeightedSums(group.get(), rank, 60);
           return true;
         }))) {
      EXPECT_EQ(status, 0);
    }
  }
}

// A rank without a share waits like all others, and is told like them when one does not come.
TEST(AllReduce, WhoHasNoShareIsNotLeftBehind) {
  const std::unique_ptr<Group> group = MakeGroup(3, 200000);
  RunThreads(3, [&](int64_t rank) {
    if (rank == 0) return;
    Communicator comm(group.get(), rank);
    comm.SetWeights(Weights::Of(std::vector<int64_t>{1, 1, 0}));
    comm.Insist(Algorithm::kWeighted);
    std::vector<float> values(100000, 1.0F);
    const Status status = comm.AllReduce(std::span<float>(values));
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, testing::StartsWith("rank 0: expected progress"));
  });
}

// Every rank gets the same bytes, those of its own codes and the others' in ascending order, and they are near the sum.
TEST(AllReduce, CompressedSumsAreTheSameOnEveryRank) {
  for (const int64_t ranks : {2, 3, 5, 8}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    for (const int64_t groups : {int64_t{1}, ranks + 1, kHostPieceBytes / 4 / kWhtGroup + 3}) {
      const int64_t count = groups * kWhtGroup;
      std::vector<std::vector<float>> parts;
      std::vector<std::vector<uint32_t>> packed;
      std::vector<const std::byte*> at;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        parts.push_back(Part<float>(rank, groups, count));
        packed.emplace_back(static_cast<size_t>(WhtBytes(groups) + 3) / 4);
        at.push_back(reinterpret_cast<std::byte*>(packed.back().data()));
        WhtEncode(parts.back(), reinterpret_cast<std::byte*>(packed.back().data()));
      }
      std::vector<float> expected(static_cast<size_t>(count));
      WhtSum(at, groups, 0, groups, expected.data());
      RunThreads(ranks, [&](int64_t rank) {
        Communicator comm(group.get(), rank);
        comm.Compress();
        std::vector<float> values = parts[static_cast<size_t>(rank)];
        ASSERT_TRUE(comm.AllReduce(std::span<float>(values)).ok());
        EXPECT_TRUE(SameBytes(values, expected)) << ranks << " ranks, " << groups << " groups";
        EXPECT_EQ(comm.last().actual, "compressed");
      });
      for (size_t g = 0; g < expected.size(); g += kWhtGroup) {
        // Errors of parts add up; the largest of a transform is at most its group's length.
        double bound = 0;
        for (const std::vector<float>& part : parts) {
          double squares = 0;
          for (size_t i = g; i < g + kWhtGroup; ++i)
            squares += static_cast<double>(part[i]) * static_cast<double>(part[i]);
          bound += std::sqrt(squares) * (4 * (1 + 0x1p-7) / kWhtTop + 0x1p-18);
        }
        for (size_t i = g; i < g + kWhtGroup; ++i) {
          double sum = 0;
          for (const std::vector<float>& part : parts) sum += static_cast<double>(part[i]);
          ASSERT_NEAR(expected[i], sum, bound);
        }
      }
    }
  }
}

TEST(Connect, TakesCrossoversOfThisMachineAlone) {
  const std::unique_ptr<Group> group = MakeGroup(3);
  const device::Device processor;
  Tuning tuning = Tuning::Read(SourceRoot() + "/tests/comm/tuning_of_another.json").value();
  Communicator comm(group.get(), 0);
  ASSERT_TRUE(comm.Connect(processor, Transport::kAuto, tuning).ok());
  EXPECT_FALSE(comm.crossovers().measured);
  EXPECT_THAT(comm.crossovers().reason, testing::HasSubstr("has nothing for 3 ranks on cpu by host on this machine"));
  EXPECT_EQ(comm.Choose<int64_t>(32768), Algorithm::kOneShot);
  tuning.Put({TuningFingerprint(processor), {Backend::kCpu, false, 3}, {4096, 131072}});
  ASSERT_TRUE(comm.Connect(processor, Transport::kAuto, tuning).ok());
  EXPECT_TRUE(comm.crossovers().measured);
  EXPECT_EQ(comm.Choose<int64_t>(4096), Algorithm::kOneShot);
  EXPECT_EQ(comm.Choose<int64_t>(4104), Algorithm::kTwoShot);
  EXPECT_EQ(comm.Choose<float>(131072), Algorithm::kOneShot);
  EXPECT_EQ(comm.Choose<uint32_t>(131076), Algorithm::kTwoShot);
  EXPECT_EQ(comm.Choose<uint32_t>(int64_t{1} << 40), Algorithm::kTwoShot) << "no weights were measured";
  const Weights weights = Weights::Of(std::vector<int64_t>{2, 2, 1});
  tuning.Put({TuningFingerprint(processor), {Backend::kCpu, false, 3}, {4096, 131072}, {weights, 500000}});
  ASSERT_TRUE(comm.Connect(processor, Transport::kAuto, tuning).ok());
  EXPECT_EQ(comm.Choose<int64_t>(4096), Algorithm::kOneShot);
  EXPECT_EQ(comm.Choose<int64_t>(499999), Algorithm::kTwoShot);
  EXPECT_EQ(comm.Choose<int64_t>(500000), Algorithm::kWeighted);
  EXPECT_EQ(comm.FormsOf<float>().Of(Algorithm::kWeighted), weights);
  EXPECT_EQ(comm.FormsOf<float>().Of(Algorithm::kTwoShot), Weights::Equal(3));
}

// Weights are of the links of the first ranks: another part of a group has other links.
TEST(Connect, GivesWeightsToTheFirstRanksAlone) {
  const std::unique_ptr<Group> group = MakeGroup(6);
  const device::Device processor;
  Tuning tuning;
  const Weights weights = Weights::Of(std::vector<int64_t>{400, 400, 200});
  tuning.Put({TuningFingerprint(processor), {Backend::kCpu, false, 3}, {4096, 131072}, {weights, 1 << 20}});
  TempDir dir;
  ASSERT_TRUE(tuning.Write(dir.Path("tuning.json")).ok());
  tuning = Tuning::Read(dir.Path("tuning.json")).value();
  for (const int64_t first : {0, 3}) {
    Group* part = group->MakePart({first, first + 1, first + 2}).value();
    Communicator comm(part, 0);
    ASSERT_TRUE(comm.Connect(processor, Transport::kAuto, tuning).ok());
    EXPECT_EQ(comm.Choose<int64_t>(4096), Algorithm::kOneShot);
    EXPECT_EQ(comm.Choose<int64_t>(1 << 20), first == 0 ? Algorithm::kWeighted : Algorithm::kTwoShot);
  }
}

}  // namespace
}  // namespace trivet::comm
