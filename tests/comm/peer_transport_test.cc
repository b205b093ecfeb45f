// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, on as many GPUs as there are; skipped without one. Ranks that are processes, and what very many
// calls do, are the business of `trivet bench allreduce --soak` (tools/device_check.sh).
#include "comm/peer_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/communicator.h"
#include "comm/wht6.h"
#include "device/buffer.h"
#include "device/graph.h"
#include "kernels/reference.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using device::Buffer;
using device::Device;

// Runs body(comm, device) on every rank of a connected group; a rank that cannot connect fails the test.
void RunConnected(Group* group, const std::function<void(Communicator*, const Device&)>& body) {
  RunThreads(group->ranks(), [&](int64_t rank) {
    const Result<Device> device = Device::Open(Backend::kCuda, rank);
    ASSERT_TRUE(device.ok());
    Communicator comm(group, rank);
    const Status connected = comm.Connect(*device, Transport::kPeer);
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    EXPECT_TRUE(comm.recordable());
    EXPECT_EQ(comm.detour(), "");
    body(&comm, *device);
  });
}

class PeerTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    const Result<Device> device = Device::Open(Backend::kCuda, 0);
    if (!device.ok()) GTEST_SKIP() << device.error().message;
  }
};

// Magnitudes far apart, so that the order of additions shows.
float TermOf(int64_t rank, int64_t call, int64_t i) {
  const auto bits = static_cast<uint32_t>(rank * 7919 + call * 104729 + i) * 2654435761U;
  return static_cast<float>(static_cast<int32_t>(bits) >> 8) * static_cast<float>(1U << (bits & 15U));
}

// What a rank gives in a call of the norm tests: magnitudes that two ranks do not cancel.
int64_t GridTermOf(int64_t rank, int64_t call, int64_t i) {
  return static_cast<int64_t>(TermOf(rank, call, i) * 4096.0F) * 31 + rank;
}

template <class T>
T PartOf(int64_t rank, int64_t call, int64_t i) {
  if constexpr (std::is_same_v<T, int64_t>) return GridTermOf(rank, call, i);
  return TermOf(rank, call, i);
}

// What a rank's sums use. It goes when nobody waits any more.
struct SumPlace {
  Communicator* comm;
  const Device& device;
  Buffer buffer;
  std::vector<device::Graph> graphs;
};

// One sum of `count` values three times, by itself, recorded, repeated, each of other numbers.
template <class T>
void SumIsThatOfTheHost(SumPlace* place, int64_t count, int64_t* call) {
  Communicator* comm = place->comm;
  const Device& device = place->device;
  const std::span<T> there = place->buffer.As<T>().first(static_cast<size_t>(count));
  for (int64_t round = 0; round < 3; ++round, ++*call) {
    std::vector<T> values(there.size()), sum(there.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      values[i] = PartOf<T>(comm->rank(), *call, at);
      sum[i] = PartOf<T>(0, *call, at);
      for (int64_t rank = 1; rank < comm->size(); ++rank) sum[i] += PartOf<T>(rank, *call, at);
    }
    const auto bytes = static_cast<int64_t>(there.size_bytes());
    device.Upload(there.data(), values.data(), bytes);
    if (round == 1) {
      place->graphs.push_back(std::move(device::Graph::Record([&] { return comm->AllReduce(there); })).value());
      ASSERT_TRUE(comm->Barrier().ok());
    }
    if (round == 0) {
      ASSERT_TRUE(comm->AllReduce(there).ok());
    } else {
      place->graphs.back().Launch();
    }
    const Status waited = comm->Wait();
    ASSERT_TRUE(waited.ok()) << waited.error().message;
    device.Download(values.data(), there.data(), bytes);
    ASSERT_EQ(values, sum) << comm->size() << " ranks, " << count << " values, round " << round;
  }
}

// Sums of float32, in ascending rank order, of sizes on both sides of every border; one by one, and repeated as a
// graph.
TEST_F(PeerTransportTest, SumsAreThoseOfTheHost) {
  for (const int64_t ranks : {2, 3, 5, 7}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunConnected(group.get(), [&](Communicator* comm, const Device& device) {
      // Not the built-in border: whatever a tuning file says gives the same bytes.
      if (ranks == 3) comm->Insist(Algorithm::kTwoShot);
      if (ranks == 5) comm->Insist(Algorithm::kOneShot);
      const int64_t border = OneShotBytes(ranks) / 4, piece = kPeerPieceBytes / 4;
      SumPlace place{comm, device, std::move(Buffer::Make(device, (piece + 64) * 4, "test")).value(), {}};
      int64_t call = 0;
      for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{511}, int64_t{1025}, border - 1, border,
                                  border + 1, border + 5, piece + 7}) {
        SumIsThatOfTheHost<float>(&place, count, &call);
        if (HasFatalFailure()) return;
      }
      EXPECT_TRUE(comm->Close().ok());
    });
  }
}

// Shares by weight, in chunks: of any weights, of ranks without a share, of one rank alone; from one value to more than
// a call carries, between sums of the other forms.
TEST_F(PeerTransportTest, WeightedSumsAreThoseOfTheHost) {
  for (const int64_t ranks : {2, 3, 5, 7, 8}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunConnected(group.get(), [&](Communicator* comm, const Device& device) {
      const int64_t piece = kPeerPieceBytes / 4;
      SumPlace place{comm, device, std::move(Buffer::Make(device, (piece + 64) * 4, "test")).value(), {}};
      std::vector<int64_t> alone(static_cast<size_t>(ranks)), uneven(alone);
      alone.back() = 1;
      for (int64_t rank = 0; rank < ranks; ++rank) uneven[static_cast<size_t>(rank)] = rank == 1 ? 0 : 100 + 37 * rank;
      int64_t call = 0;
      for (const Weights& weights : {Weights::Of(uneven), Weights::Of(alone), Weights::Equal(ranks)}) {
        comm->SetWeights(weights);
        for (const int64_t count : {int64_t{1}, int64_t{4}, int64_t{9}, int64_t{4097}, int64_t{262144}, int64_t{300001},
                                    int64_t{1000003}, piece + 7}) {
          comm->Insist(Algorithm::kWeighted);
          SumIsThatOfTheHost<float>(&place, count, &call);
          if (HasFatalFailure()) return;
          SumIsThatOfTheHost<int64_t>(&place, std::min(count, piece / 2), &call);
          if (HasFatalFailure()) return;
          comm->Insist(call % 2 == 0 ? Algorithm::kOneShot : Algorithm::kTwoShot);
          SumIsThatOfTheHost<float>(&place, 1 + count % 40000, &call);
          if (HasFatalFailure()) return;
        }
      }
      EXPECT_TRUE(comm->Close().ok());
    });
  }
}

// A rank that does not come is named in the midst of a sum in chunks, too, by ranks with a share and without.
TEST_F(PeerTransportTest, AMissingRankOfAWeightedSumIsNamed) {
  const std::unique_ptr<Group> group = MakeGroup(3, 300000);
  RunConnected(group.get(), [&](Communicator* comm, const Device& device) {
    Buffer buffer = std::move(Buffer::Make(device, 4 << 20, "test")).value();
    comm->SetWeights(Weights::Of(std::vector<int64_t>{1, 0, 1}));
    comm->Insist(Algorithm::kWeighted);
    ASSERT_TRUE(comm->Barrier().ok());
    if (comm->rank() == 2) return;
    EXPECT_TRUE(comm->AllReduce(buffer.As<int64_t>()).ok());
    const Status status = comm->Wait();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, testing::StartsWith("rank 2: expected its part"));
  });
}

// Everything that AddNorm reads and writes, on one side.
struct NormCase {
  NormCase(int64_t rows, int64_t n, int64_t call) : x(Size(rows * n)), y(Size(rows * n), -1), weight(Size(n)) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = TermOf(77, call, static_cast<int64_t>(i)) * 0x1p-10F;
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5F + static_cast<float>(i % 13) * 0.17F;
  }
  static size_t Size(int64_t count) { return static_cast<size_t>(count); }
  std::vector<float> x, y, weight;
};

kernels::AddNorm::Args NormArgs(int64_t rows, int64_t n, float* x, float* y, const float* weight) {
  kernels::AddNorm::Args args;
  args.x = x, args.y = y, args.weight = weight, args.n = n, args.eps = 1e-6F, args.offset = 1, args.end = rows;
  return args;
}

// What AddNorm takes when all ranks have added their parts, as integers or as the floats that theirs are.
template <class T>
std::vector<T> SumsOver(int64_t ranks, int64_t count, int64_t call) {
  std::vector<T> sums;
  for (int64_t i = 0; i < count; ++i) {
    const auto part = [&](int64_t rank) {
      const int64_t own = GridTermOf(rank, call, i);
      return std::is_same_v<T, float> ? static_cast<T>(kernels::FromGrid(own)) : static_cast<T>(own);
    };
    T sum = part(0);
    for (int64_t rank = 1; rank < ranks; ++rank) sum += part(rank);
    sums.push_back(sum);
  }
  return sums;
}

template <class T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

// What a rank's calls use. It goes when nobody waits any more.
struct NormPlace {
  Communicator* comm;
  const Device& device;
  Buffer buffer;
  std::vector<device::Graph> graphs;
};

// One call of `rows` rows of n, three times: by itself, recorded, repeated; parts travel as T. Returns whether the
// group joins them.
template <class T>
bool NormIsThatOfTheReference(NormPlace* place, int64_t rows, int64_t n, int64_t call) {
  Communicator* comm = place->comm;
  const Device& device = place->device;
  const int64_t count = rows * n, floats = count * 4;
  NormCase host(rows, n, call);
  std::vector<T> total = SumsOver<T>(comm->size(), count, call);
  kernels::AddNorm::Args expected = NormArgs(rows, n, host.x.data(), host.y.data(), host.weight.data());
  if constexpr (std::is_same_v<T, int64_t>) expected.sums_fixed = total.data();
  if constexpr (std::is_same_v<T, float>) expected.sums_fast = total.data();
  kernels::AddNormRef(expected);
  auto* sums = place->buffer.As<int64_t>().data();
  float* x = place->buffer.As<float>().data() + count * 2;
  float *y = x + count, *rounded = y + count, *weight = rounded + count;
  kernels::AddNorm::Args args = NormArgs(rows, n, x, y, weight);
  args.sums_fixed = sums;
  args.sums_fast = std::is_same_v<T, float> ? rounded : nullptr;
  const bool joins = comm->JoinsNorm(args);
  for (int64_t round = 0; joins && round < 3; ++round) {
    const NormCase fresh(rows, n, call);
    std::vector<int64_t> own;
    for (int64_t i = 0; i < count; ++i) own.push_back(GridTermOf(comm->rank(), call, i));
    device.Upload(x, fresh.x.data(), floats);
    device.Upload(y, fresh.y.data(), floats);
    device.Upload(weight, fresh.weight.data(), n * 4);
    device.Upload(sums, own.data(), count * 8);
    if (round == 1) {
      place->graphs.push_back(std::move(device::Graph::Record([&] { return comm->AllReduceAddNorm(args); })).value());
      EXPECT_TRUE(comm->Barrier().ok());
    }
    if (round == 0) {
      EXPECT_TRUE(comm->AllReduceAddNorm(args).ok());
    } else {
      place->graphs.back().Launch();
    }
    const Status waited = comm->Wait();
    EXPECT_TRUE(waited.ok()) << waited.error().message;
    NormCase got(rows, n, call);
    device.Download(got.x.data(), x, floats);
    device.Download(got.y.data(), y, floats);
    device.Download(own.data(), sums, count * 8);
    EXPECT_TRUE(SameBytes(got.x, host.x) && SameBytes(got.y, host.y))
        << comm->size() << " ranks, " << rows << " rows of " << n << ", round " << round;
    EXPECT_EQ(own, std::vector<int64_t>(own.size(), 0)) << "sums that the next branch adds to";
  }
  return joins;
}

// The sum, the end of the residual branch and the norm as one kernel have the bytes of the reference, between sums of
// other sizes; rows that are no multiple of anything included.
TEST_F(PeerTransportTest, ANormJoinedToASumHasTheBytesOfBoth) {
  for (const int64_t ranks : {2, 3, 5, 7}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunConnected(group.get(), [&](Communicator* comm, const Device& device) {
      Buffer other = std::move(Buffer::Make(device, 4 << 20, "test")).value();
      NormPlace place{comm, device, std::move(Buffer::Make(device, 1 << 20, "test")).value(), {}};
      int64_t call = 0, joined = 0;
      for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{1, 5120},
                                    {1, 18},
                                    {2, 1000},
                                    {3, 2880},
                                    {8, 5120},
                                    {1, 16384},
                                    {4, 64},
                                    {1, 7},
                                    {1, 9998},
                                    {9, 128},
                                    {1, 16386}}) {
        joined += NormIsThatOfTheReference<int64_t>(&place, rows, n, ++call) ? 1 : 0;
        ASSERT_TRUE(comm->AllReduce(other.As<float>().first(static_cast<size_t>(1 + 4001 * call))).ok());
        joined += NormIsThatOfTheReference<float>(&place, rows, n, ++call) ? 1 : 0;
      }
      ASSERT_TRUE(comm->Wait().ok());
      EXPECT_GE(joined, device.level() >= 90 ? 8 : 0) << ranks << " ranks";
      EXPECT_TRUE(comm->Close().ok());
    });
  }
}

// Compressed sums have the bytes of the host's, of one piece and of several.
TEST_F(PeerTransportTest, CompressedSumsAreThoseOfTheHost) {
  for (const int64_t ranks : {2, 3, 7}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunConnected(group.get(), [&](Communicator* comm, const Device& device) {
      Buffer buffer = std::move(Buffer::Make(device, 16 << 20, "test")).value();
      comm->Compress();
      for (const int64_t groups : {int64_t{1}, int64_t{80}, int64_t{129}, int64_t{40001}}) {
        const auto count = static_cast<size_t>(groups * kWhtGroup);
        std::vector<float> own, expected(count), got(count);
        std::vector<std::vector<uint32_t>> packed;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          std::vector<float> part(count);
          for (size_t i = 0; i < count; ++i) part[i] = TermOf(rank, groups, static_cast<int64_t>(i));
          packed.emplace_back(static_cast<size_t>(WhtBytes(groups) + 3) / 4);
          WhtEncode(part, reinterpret_cast<std::byte*>(packed.back().data()));
          if (rank == comm->rank()) own = std::move(part);
        }
        std::vector<const std::byte*> at;
        for (const std::vector<uint32_t>& one : packed) at.push_back(reinterpret_cast<const std::byte*>(one.data()));
        WhtSum(at, groups, 0, groups, expected.data());
        const std::span<float> there = buffer.As<float>().first(count);
        const auto bytes = static_cast<int64_t>(there.size_bytes());
        device.Upload(there.data(), own.data(), bytes);
        ASSERT_TRUE(comm->AllReduce(there).ok());
        const Status waited = comm->Wait();
        ASSERT_TRUE(waited.ok()) << waited.error().message;
        device.Download(got.data(), there.data(), bytes);
        ASSERT_TRUE(SameBytes(got, expected)) << ranks << " ranks, " << groups << " groups";
      }
      EXPECT_TRUE(comm->Close().ok());
    });
  }
}

TEST_F(PeerTransportTest, ColumnsOfAllRanksComeToRankZero) {
  for (const int64_t ranks : {2, 3, 7}) {
    const std::unique_ptr<Group> group = MakeGroup(ranks);
    RunConnected(group.get(), [&](Communicator* comm, const Device& device) {
      Buffer there = std::move(Buffer::Make(device, 24 << 20, "test")).value();
      // A narrow matrix, one of several pieces, and one whose rows are longer than a piece.
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 1001}, {40, 120001}, {2, 2500003}}) {
        // Rank 1 has nothing.
        const Share own = comm->rank() == 1   ? Share{0, 0}
                          : comm->rank() == 0 ? ShareOf(columns, ranks - 1, 0)
                                              : ShareOf(columns, ranks - 1, comm->rank() - 1);
        const int64_t width = own.end - own.begin, stride = width + 3;
        const auto value = [](int64_t row, int64_t column) { return static_cast<float>(row * 13 + column % 9973); };
        std::vector<float> local(static_cast<size_t>(rows * stride), -1), full;
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < width; ++i) local[static_cast<size_t>(row * stride + i)] = value(row, own.begin + i);
        }
        const auto bytes = static_cast<int64_t>(local.size() * sizeof(float));
        ASSERT_LE(bytes, there.bytes());
        device.Upload(there.data(), local.data(), bytes);
        if (comm->rank() == 0) full.assign(static_cast<size_t>(rows * columns), -2);
        const Status gathered =
            comm->GatherColumns({there.As<float>().data(), stride, width, own.begin}, rows, columns, full);
        ASSERT_TRUE(gathered.ok()) << gathered.error().message;
        for (size_t i = 0; i < full.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          ASSERT_EQ(full[i], value(at / columns, at % columns)) << ranks << " ranks, row " << at / columns;
        }
        std::vector<float> pieces;
        const RowsSink sink = [&](const float* matrix, int64_t first, int64_t count, Backend where) {
          EXPECT_EQ(where, columns > 2000000 ? Backend::kCpu : Backend::kCuda) << "a piece holds a row";
          EXPECT_EQ(first * columns, std::ssize(pieces));
          pieces.resize(pieces.size() + static_cast<size_t>(count * columns));
          float* to = pieces.data() + first * columns;
          if (where == Backend::kCpu) {
            std::copy_n(matrix, count * columns, to);
          } else {
            device.Download(to, matrix, count * columns * static_cast<int64_t>(sizeof(float)));
          }
        };
        const Status in_pieces =
            comm->GatherColumns({there.As<float>().data(), stride, width, own.begin}, rows, columns, sink);
        ASSERT_TRUE(in_pieces.ok()) << in_pieces.error().message;
        ASSERT_EQ(pieces, full);
        ASSERT_TRUE(comm->Wait().ok());  // before `there` changes
      }
      EXPECT_TRUE(comm->Close().ok());
    });
  }
}

// Whoever waits for a rank that does not come gives up, and says which one it was.
TEST_F(PeerTransportTest, AMissingRankIsNamed) {
  const std::unique_ptr<Group> group = MakeGroup(3, 300000);
  RunConnected(group.get(), [&](Communicator* comm, const Device& device) {
    Buffer buffer = std::move(Buffer::Make(device, 4096, "test")).value();
    ASSERT_TRUE(comm->Barrier().ok());
    if (comm->rank() == 2) return;
    for (const bool again : {false, true}) {
      const Status asked = comm->AllReduce(buffer.As<int64_t>());
      EXPECT_EQ(asked.ok(), !again);
      const Status status = comm->Wait();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, Code::kPeer);
      EXPECT_THAT(status.error().message, testing::StartsWith("rank 2: expected its part"));
    }
  });
}

// Kernels that wait leave when the group is aborted, long before they would give up.
TEST_F(PeerTransportTest, AnAbortEndsWaits) {
  const std::unique_ptr<Group> group = MakeGroup(2, 20000000);
  RunConnected(group.get(), [&](Communicator* comm, const Device& device) {
    Buffer buffer = std::move(Buffer::Make(device, 4096, "test")).value();
    ASSERT_TRUE(comm->Barrier().ok());
    if (comm->rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return group->Abort("rank 1: had enough");
    }
    ASSERT_TRUE(comm->AllReduce(buffer.As<int64_t>()).ok());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(comm->Wait().error().message, "rank 1: had enough");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  });
}

TEST(Connect, SaysWhyThereAreNoPeers) {
  const std::unique_ptr<Group> group = MakeGroup(2);
  Communicator comm(group.get(), 0);
  EXPECT_TRUE(comm.Connect(Device(), Transport::kAuto).ok());
  EXPECT_FALSE(comm.recordable());
  const Status peer = comm.Connect(Device(), Transport::kPeer);
  ASSERT_FALSE(peer.ok());
  EXPECT_EQ(peer.error().code, Code::kUnsupported);
  EXPECT_THAT(peer.error().message, testing::HasSubstr("expected ranks on GPUs"));
  EXPECT_TRUE(comm.Close().ok());
}

}  // namespace
}  // namespace trivet::comm
