// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "comm/wht6.h"

namespace trivet::comm {
namespace {

// A block's share of a call: enough for every thread to have something, and little enough to use many links at once.
constexpr int64_t kWordsABlock = 512;
constexpr int64_t kUnitsABlock = 512;
constexpr int64_t kUnitBytes = PeerLayout::kUnitBytes;

// What one rank may write into a half of another's memory.
constexpr int64_t PartBytes(int64_t ranks) { return kPeerPieceBytes / ranks; }

}  // namespace

// What a rank shows the others while they connect.
struct PeerTransport::Offer {
  device::PeerHandle handle;
  int64_t processors = 0;
  int64_t level = 0;
  bool failed = false;
  Code code = Code::kUnsupported;
  char message[1024] = {};
};

PeerTransport::Offer& PeerTransport::offer(int64_t rank) const {
  return *reinterpret_cast<Offer*>(group_->slot(rank, 0));
}

Result<std::unique_ptr<PeerTransport>> PeerTransport::Make(Group* group, int64_t rank, const device::Device& device,
                                                           bool shared) {
  std::unique_ptr<PeerTransport> made(new PeerTransport(group, rank, device));
  TRY(group->Barrier(rank));  // nobody reads the slots any more
  made->offer(rank) = {};
  TRY(made->Agree(made->MakeOwn()));
  if (!shared) TRY(made->JudgeSharing());
  made->shown_ = true;
  TRY(made->Agree(made->OpenAll()));
  TRY(made->Agree(made->Probe()));
  return made;
}

Status PeerTransport::Agree(const Status& own) {
  Offer& mine = offer(rank_);
  mine.failed = !own.ok();
  if (!own.ok()) {
    mine.code = own.error().code;
    std::strncpy(mine.message, own.error().message.c_str(), sizeof(mine.message) - 1);
  }
  TRY(group_->Barrier(rank_, true));
  Status first;
  for (int64_t rank = group_->ranks() - 1; rank >= 0; --rank) {
    if (offer(rank).failed) first = MakeError(offer(rank).code, offer(rank).message);
  }
  TRY(group_->Barrier(rank_, true));  // all have read before anybody writes again
  return first;
}

Status PeerTransport::MakeOwn() {
  peers_.layout = {group_->ranks()};
  peers_.rank = rank_;
  peers_.limit_ns = group_->hang_timeout_us() * 1000;
  TRY_ASSIGN(memory_, device::PeerMemory::Make(device_, peers_.layout.Bytes(), "memory that ranks share"));
  TRY_ASSIGN(page_, device::HostPages::Map(group_->signals(rank_), Group::kSignalBytes));
  peers_.signals = static_cast<Signals*>(page_.on_device());
  offer(rank_).handle = memory_.handle();
  offer(rank_).processors = cuda::Processors();
  offer(rank_).level = device_.level();
  device_.Wait();  // the memory is zero before others write to it
  return {};
}

Status PeerTransport::JudgeSharing() const {
  for (int64_t a = 0; a < group_->ranks(); ++a) {
    for (int64_t b = 0; b < a; ++b) {
      const device::PeerHandle &one = offer(b).handle, &other = offer(a).handle;
      if (one.ordinal != other.ordinal || one.process == other.process) continue;
      return MakeError(Code::kUnsupported, fmt::format("GPU {}: expected one process, found those of ranks {} and {}, "
                                                       "which take turns; use --launch threads",
                                                       one.ordinal, b, a));
    }
  }
  return {};
}

Status PeerTransport::OpenAll() {
  processors_ = offer(rank_).processors;
  level_ = offer(rank_).level;
  for (int64_t rank = 0; rank < group_->ranks(); ++rank) {
    const device::PeerHandle& handle = offer(rank).handle;
    TRY_ASSIGN(peers_.memory[rank], memory_.Open(handle));
    processors_ = std::min(processors_, offer(rank).processors);
    level_ = std::min(level_, offer(rank).level);
    int64_t on_device = 0;
    for (int64_t other = 0; other < group_->ranks(); ++other) {
      on_device += offer(other).handle.ordinal == handle.ordinal ? 1 : 0;
    }
    ranks_on_device_ = std::max(ranks_on_device_, on_device);
  }
  return {};
}

// Some machines say that GPUs reach each other, and bring wrong bytes.
Status PeerTransport::Probe() {
  const auto term = [](int64_t i) { return i * 1000003 + 1; };
  const int64_t factor = group_->ranks() * (group_->ranks() + 1) / 2;
  // Not in memory of its own: freeing that would wait for the whole GPU, where others may already wait for this rank.
  auto* there = reinterpret_cast<int64_t*>(memory_.data() + peers_.layout.Matrix());
  const Forms forms{OneShotBytes(group_->ranks()), INT64_MAX, Weights::Equal(group_->ranks())};
  for (const int64_t bytes : {forms.one_shot_bytes, kPeerPieceBytes}) {
    std::vector<int64_t> values(static_cast<size_t>(bytes) / sizeof(int64_t));
    for (size_t i = 0; i < values.size(); ++i) values[i] = (rank_ + 1) * term(static_cast<int64_t>(i));
    device_.Upload(there, values.data(), bytes);
    AllReduce(std::span(there, values.size()), forms);
    device_.Download(values.data(), there, bytes);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == factor * term(static_cast<int64_t>(i))) continue;
      return MakeError(Code::kUnsupported, fmt::format("rank {}: expected the sum of known numbers through memory of "
                                                       "other GPUs, found another at {}; use --transport host",
                                                       rank_, i));
    }
  }
  return {};
}

PeerTransport::~PeerTransport() {
  if (!shown_) return;
  // Kernels of this rank that still wait leave, so that what they use can go.
  std::atomic_ref(group_->signals(rank_)->stop).store(1);
  device_.Wait();
  memory_.Abandon();
}

Status PeerTransport::Close() {
  device_.Wait();
  TRY(group_->Barrier(rank_));  // nobody writes any more
  memory_.Close();
  TRY(group_->Barrier(rank_));  // nobody sees this memory any more
  shown_ = false;
  return {};
}

template <class T>
void PeerTransport::Reduce(std::span<T> values, const Forms& forms) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  while (!values.empty()) {
    const auto bytes = static_cast<int64_t>(values.size_bytes());
    const Algorithm form = forms.Choose(bytes);
    int64_t taken = std::min(bytes, kPacketWords * 8);
    if (form == Algorithm::kOneShot || bytes < kUnitBytes) {
      const int64_t blocks = BlocksFor((taken + 7) / 8, kWordsABlock, processors_, ranks_on_device_);
      cuda::OneShot(peers_, blocks, values.data(), taken / kSize);
    } else {
      const Weights weights = forms.Of(form);
      // The rest is a call of its own.
      const int64_t units = std::min(bytes / kUnitBytes, peers_.layout.TwoShotUnits(weights));
      taken = units * kUnitBytes;
      const int64_t chunks = form == Algorithm::kWeighted ? ChunksFor(taken) : 1;
      const int64_t blocks = BlocksFor(weights.Largest(units) / chunks, kUnitsABlock, processors_, ranks_on_device_);
      cuda::TwoShot(peers_, blocks, values.data(), weights.SharesOf(units), chunks);
    }
    values = values.subspan(static_cast<size_t>(taken / kSize));
  }
}

template void PeerTransport::Reduce(std::span<int64_t> values, const Forms& forms);
template void PeerTransport::Reduce(std::span<float> values, const Forms& forms);
template void PeerTransport::Reduce(std::span<uint32_t> values, const Forms& forms);

void PeerTransport::CompressedSum(std::span<float> values) {
  const auto most = static_cast<size_t>(PartBytes(group_->ranks()) / WhtBytes(1) * kWhtGroup);
  while (!values.empty()) {
    const std::span<float> piece = values.first(std::min(most, values.size()));
    const auto count = static_cast<int64_t>(piece.size());
    cuda::CompressedSum(peers_, BlocksFor(count / kWhtGroup, kWhtBlockGroups, processors_, ranks_on_device_),
                        piece.data(), count);
    values = values.subspan(piece.size());
  }
}

bool PeerTransport::ServesNorm(int64_t rows, int64_t n, int64_t part_bytes) const {
  constexpr int64_t kClusters = 90;  // the compute capability that has them
  constexpr int64_t kWordBytes = 8;
  return level_ >= kClusters && rows >= 1 && n <= cuda::kNormLongest && n * part_bytes % kWordBytes == 0 &&
         rows * n * part_bytes <= kPacketWords * kWordBytes &&
         rows * cuda::kNormBlocks <= BlocksFor(kMaxBlocks, 1, processors_, ranks_on_device_);
}

const float* PeerTransport::Gather(const cuda::Columns& columns) {
  // Every rank starts as many blocks, whatever it adds.
  const int64_t units = columns.rows * columns.full_columns / group_->ranks() / 4;
  cuda::Gather(peers_, BlocksFor(units, kUnitsABlock, processors_, ranks_on_device_), columns);
  if (rank_ != 0) return nullptr;
  return reinterpret_cast<const float*>(peers_.memory[0] + peers_.layout.Matrix());
}

Status PeerTransport::Check() {
  if (group_->aborted()) return group_->AbortError();
  const uint32_t missing = std::atomic_ref(group_->signals(rank_)->missing).load();
  if (missing == 0) return {};
  // A process that has ended is the better cause.
  const std::optional<std::string> cause = group_->Look();
  group_->Abort(cause ? *cause
                      : fmt::format("rank {}: expected its part of an exchange within {:.1f} s, found none; it hangs, "
                                    "restart the run",
                                    missing - 1, static_cast<double>(group_->hang_timeout_us()) * 1e-6));
  return group_->AbortError();
}

}  // namespace trivet::comm
