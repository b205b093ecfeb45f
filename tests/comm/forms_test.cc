// SPDX-License-Identifier: Apache-2.0
// How a sum is made changes none of its bits, and which form is taken is what was measured on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/wht6.h"
#include "tests/comm/parts.h"
#include "tests/comm/ranks.h"
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
        for (const Algorithm form : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
          comm.Insist(form);
          ReduceAndCompare(&comm, call, expected);
          EXPECT_EQ(comm.last().actual, AlgorithmName(form));
        }
        ++call;
      }
    });
  }
}

TEST(AllReduce, BothFormsGiveTheSameBytesAtEverySize) {
  CompareForms<int64_t>();
  CompareForms<float>();
  CompareForms<uint32_t>();
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
}

}  // namespace
}  // namespace trivet::comm
