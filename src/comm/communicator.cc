// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "comm/host_rules.h"
#include "comm/wht6.h"

namespace trivet::comm {
namespace {

// What stands before the columns of one rank in a gather: where they belong, in a line of its own.
constexpr int64_t kGatherHeaderBytes = 64;

// Those of `columns` that belong to [column, column + width) of row `row` and the following; their place counts from
// `column`.
ColumnRange ColumnsWithin(const ColumnRange& columns, int64_t row, int64_t column, int64_t width) {
  if (columns.columns == 0) return {};
  const int64_t begin = std::clamp(columns.begin, column, column + width);
  const int64_t end = std::clamp(columns.begin + columns.columns, column, column + width);
  return {columns.data + row * columns.stride + (begin - columns.begin), columns.stride, end - begin, begin - column,
          columns.on_host};
}

// Whether a planted mistake touches what the host sums.
bool ChangesSums(FaultKind kind) {
  return kind == FaultKind::kPartialBF16 || kind == FaultKind::kLocalScale || kind == FaultKind::kRankOrder ||
         kind == FaultKind::kFallback;
}

// What a sum of T over `ranks` is made of.
template <class T>
CollectiveFacts FactsOf(int64_t ranks) {
  CollectiveFacts facts;
  facts.ranks = ranks;
  facts.kind = "all-reduce";
  if constexpr (std::is_same_v<T, float>) {
    facts.payload = facts.accumulate = "f32";
    facts.order = "ascending ranks";
    facts.round_at = "every addition";
  } else {
    facts.payload = facts.accumulate = std::is_same_v<T, int64_t> ? "i64" : "u32";
    facts.order = "any";  // integers
    facts.round_at = std::is_same_v<T, int64_t> ? "the grid, before the sum" : "nowhere";
  }
  return facts;
}

}  // namespace

Communicator::Communicator(Group* group, int64_t rank, const Fault& fault) : group_(group), rank_(rank), fault_(fault) {
  crossovers_ = Tuning().Choose("", {Backend::kCpu, false, size()});
  fault_.rank = -1;
  for (int64_t member = 0; member < group->ranks(); ++member) {
    if (group->InWhole(member) == fault.rank) fault_.rank = member;
  }
}

Status Communicator::Connect(const device::Device& device, Transport transport, const Tuning& tuning) {
  device_ = device;
  TRY(ConnectPeers(transport));
  const std::string machine = tuning.path().empty() ? "" : TuningFingerprint(device);
  crossovers_ = tuning.Choose(machine, {device.backend(), peer_ != nullptr, size()});
  // What was measured are the links of ranks 0, 1, 2...; those of another part of a group may be others.
  bool first = true;
  for (int64_t rank = 0; rank < size(); ++rank) first = first && group_->InWhole(rank) == rank;
  if (!first) crossovers_.weighted = {Weights::Equal(size())};
  return {};
}

Status Communicator::ConnectPeers(Transport transport) {
  if (device_.backend() == Backend::kCpu) {
    if (transport != Transport::kPeer) return {};
    return MakeError(Code::kUnsupported,
                     "--transport peer: expected ranks on GPUs, found them on the processor; use --backend cuda");
  }
  if (size() == 1) return {};
  if (transport == Transport::kHost) {
    detour_ = "--transport host";
  } else if (ChangesSums(fault_.kind)) {
    detour_ = "the planted fault changes sums there";
  } else {
    Result<std::unique_ptr<PeerTransport>> made =
        PeerTransport::Make(group_, rank_, device_, transport == Transport::kPeer);
    if (made.ok()) {
      peer_ = std::move(made).value();
      return {};
    }
    if (made.error().code != Code::kUnsupported) return made.error();
    detour_ = made.error().message;
  }
  if (transport != Transport::kPeer) return {};
  return MakeError(Code::kUnsupported, "--transport peer: " + detour_);
}

Status Communicator::Close() {
  if (peer_ == nullptr) return {};
  TRY(peer_->Close());
  peer_.reset();
  return {};
}

Status Communicator::Wait() {
  device_.Wait();
  return peer_ == nullptr ? Status() : peer_->Check();
}

void Communicator::Insist(Algorithm algorithm) {
  const int64_t bytes = algorithm == Algorithm::kOneShot ? INT64_MAX : 0;
  crossovers_.one_shot = {bytes, bytes};
  crossovers_.weighted.from_bytes = algorithm == Algorithm::kWeighted ? 0 : INT64_MAX;
}

void Communicator::SetWeights(const Weights& weights) {
  CHECK(weights.ranks() == size());
  crossovers_.weighted.weights = weights;
}

Status Communicator::AllReduce(std::span<int64_t> values) { return Reduce(values); }
Status Communicator::AllReduce(std::span<float> values) { return Reduce(values); }
Status Communicator::AllReduce(std::span<uint32_t> values) { return Reduce(values); }

Result<std::span<int64_t>> Communicator::ReduceRows(std::span<int64_t> values, int64_t columns,
                                                    std::span<const RowRun> runs) {
  return ReduceOwn(values, columns, runs);
}
Result<std::span<float>> Communicator::ReduceRows(std::span<float> values, int64_t columns,
                                                  std::span<const RowRun> runs) {
  return ReduceOwn(values, columns, runs);
}
Result<std::span<uint32_t>> Communicator::ReduceRows(std::span<uint32_t> values, int64_t columns,
                                                     std::span<const RowRun> runs) {
  return ReduceOwn(values, columns, runs);
}

// The planted mistakes that touch a part before it is handed over.
template <class T>
void Communicator::Spoil(std::span<T> part) {
  const bool bf16 = fault_.Hits(FaultKind::kPartialBF16, rank_), scale = fault_.Hits(FaultKind::kLocalScale, rank_);
  if ((!bf16 && !scale) || site_ != fault_.site) return;
  double largest = 0;
  for (const T value : part) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  if (largest == 0) return;
  last_.round_at = bf16 ? "bf16, before the sum" : "8 bits, before the sum";
  for (T& value : part) {
    if (bf16) {
      value = static_cast<T>(RoundedToBF16(static_cast<float>(value)));
    } else {
      value = static_cast<T>(std::nearbyint(static_cast<double>(value) / largest * 127) * largest / 127);
    }
  }
}

template <class T>
Status Communicator::Reduce(std::span<T> values) {
  const Timer timer(this);
  last_ = {};
  if (size() == 1 && (fault_.kind == FaultKind::kNone || fault_.rank < 0)) return {};
  if (size() > 1) last_ = FactsOf<T>(size());
  if constexpr (std::is_same_v<T, float>) {
    if (compressed_ && size() > 1) return ReduceCompressed(values);
  }
  if (peer_ != nullptr) {
    if (group_->aborted()) return group_->AbortError();
    last_.configured = last_.actual = AlgorithmName(Choose<T>(static_cast<int64_t>(values.size_bytes())));
    peer_->AllReduce(values, FormsOf<T>());
    return {};
  }
  const Forms forms = FormsOf<T>();
  const Algorithm configured = forms.Choose(static_cast<int64_t>(values.size_bytes()));
  Algorithm actual = configured;
  if (fault_.kind == FaultKind::kFallback) {
    actual = configured == Algorithm::kOneShot ? Algorithm::kTwoShot : Algorithm::kOneShot;
  }
  if (size() > 1) last_.configured = AlgorithmName(configured), last_.actual = AlgorithmName(actual);
  TRY(actual == Algorithm::kOneShot ? ReduceOneShot(values) : ReduceByShares(values, forms.Of(actual)));
  if constexpr (!std::is_same_v<T, uint32_t>) ++site_;
  return {};
}

// Every rank takes the parts of its own rows from all slots, so there is one way, whatever the size.
template <class T>
Result<std::span<T>> Communicator::ReduceOwn(std::span<T> values, int64_t columns, std::span<const RowRun> runs) {
  if (HasAll(runs)) {
    TRY(Reduce(values));
    return values;
  }
  CHECK(device_.backend() == Backend::kCpu && !compressed_);
  const Timer timer(this);
  last_ = FactsOf<T>(size());
  last_.kind = "reduce-scatter";
  last_.configured = last_.actual = AlgorithmName(Algorithm::kOneShot);
  const int64_t rows = static_cast<int64_t>(values.size()) / columns;
  const int64_t most =
      std::clamp<int64_t>(kHostPieceBytes / static_cast<int64_t>(sizeof(T)) / columns, 1, RowsAtOnce<T>(columns));
  const auto rows_of = [&](int64_t begin, int64_t end) {
    return values.subspan(static_cast<size_t>(begin * columns), static_cast<size_t>((end - begin) * columns));
  };
  int64_t done = 0;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t last = std::min(first + most, rows);
    TRY_ASSIGN(const int64_t parity, NextSlots());
    ShowPart<T>(rows_of(first, last), parity);
    TRY(group_->Barrier(rank_));
    // What is written here stands before the end of this piece: no later part is lost.
    for (const RowRun& run : runs) {
      const int64_t begin = std::clamp(run.begin, first, last), end = std::clamp(run.begin + run.count, first, last);
      if (run.rank != rank_ || begin == end) continue;
      Sum<T>(parity, (begin - first) * columns, rows_of(done, done + end - begin));
      done += end - begin;
    }
  }
  const std::span<T> rest = rows_of(done, rows);
  std::fill(rest.begin(), rest.end(), T{});
  if constexpr (!std::is_same_v<T, uint32_t>) ++site_;
  return rows_of(0, done);
}

// Every rank adds the groups of a share, its own codes among the others', so that all end with the same bits.
Status Communicator::ReduceCompressed(std::span<float> values) {
  CHECK(values.size() % kWhtGroup == 0);
  last_.configured = last_.actual = "compressed";
  last_.payload = "wht6";
  last_.round_at = "6 bits of every part, and every addition";
  if (group_->aborted()) return group_->AbortError();
  if (peer_ != nullptr) {
    peer_->CompressedSum(values);
    return {};
  }
  constexpr size_t kMost = kHostPieceBytes / sizeof(float);
  for (size_t at = 0; at < values.size(); at += kMost) {
    const std::span<float> piece = values.subspan(at, std::min(kMost, values.size() - at));
    const auto bytes = static_cast<int64_t>(piece.size_bytes()), groups = bytes / (4 * kWhtGroup);
    TRY_ASSIGN(const int64_t parity, NextSlots());
    const std::span<float> own = HostOf(piece);
    if (own.data() != piece.data()) device_.Download(own.data(), piece.data(), bytes);
    WhtEncode(own, group_->slot(rank_, parity));
    TRY(group_->Barrier(rank_));
    std::vector<const std::byte*> parts;
    for (int64_t from = 0; from < size(); ++from) parts.push_back(group_->slot(from, parity));
    const Share share = ShareOf(groups, size(), rank_);
    auto* result = reinterpret_cast<float*>(group_->result(parity));
    WhtSum(parts, groups, share.begin, share.end, result + share.begin * kWhtGroup);
    TRY(group_->Barrier(rank_));
    device_.Upload(piece.data(), result, bytes);
  }
  return {};
}

bool Communicator::JoinsNorm(const kernels::AddNorm::Args& args) const {
  if (peer_ == nullptr || args.begin != 0 || args.sums_fixed == nullptr) return false;
  const bool fixed = args.sums_fast == nullptr;
  if (compressed_ && !fixed) return false;
  const int64_t part_bytes = fixed ? sizeof(int64_t) : sizeof(float), bytes = args.end * args.n * part_bytes;
  const Algorithm form = fixed ? Choose<int64_t>(bytes) : Choose<float>(bytes);
  return form == Algorithm::kOneShot && peer_->ServesNorm(args.end, args.n, part_bytes);
}

Status Communicator::AllReduceAddNorm(const kernels::AddNorm::Args& args) {
  CHECK(JoinsNorm(args));
  const Timer timer(this);
  last_ = args.sums_fast == nullptr ? FactsOf<int64_t>(size()) : FactsOf<float>(size());
  if (group_->aborted()) return group_->AbortError();
  last_.configured = last_.actual = AlgorithmName(Algorithm::kOneShot);
  peer_->SumAddNorm(args);
  return {};
}

// out[i] = sum over ranks of element begin + i of their slots, in ascending rank order.
template <class T>
void Communicator::Sum(int64_t parity, int64_t begin, std::span<T> out) {
  const int64_t first = fault_.Hits(FaultKind::kRankOrder, rank_) ? rank_ : 0;
  if (first > 0) last_.order = "from the own rank";
  for (int64_t i = 0; i < size(); ++i) {
    const T* part = reinterpret_cast<const T*>(group_->slot((first + i) % size(), parity)) + begin;
    if (i == 0) {
      std::copy_n(part, out.size(), out.begin());
    } else {
      for (size_t j = 0; j < out.size(); ++j) out[j] += part[j];
    }
  }
}

template <class T>
std::span<T> Communicator::HostOf(std::span<T> values) {
  if (device_.backend() == Backend::kCpu) return values;
  staging_.resize(values.size_bytes());
  return {reinterpret_cast<T*>(staging_.data()), values.size()};
}

Result<int64_t> Communicator::NextSlots() {
  if (group_->aborted()) return group_->AbortError();
  return calls_++ & 1;
}

template <class T>
void Communicator::ShowPart(std::span<const T> values, int64_t parity) {
  const std::span<T> part(reinterpret_cast<T*>(group_->slot(rank_, parity)), values.size());
  device_.Download(part.data(), values.data(), static_cast<int64_t>(values.size_bytes()));
  if constexpr (!std::is_same_v<T, uint32_t>) Spoil(part);
}

template <class T>
Status Communicator::ReduceOneShot(std::span<T> values) {
  constexpr size_t kMost = kHostPieceBytes / sizeof(T);
  for (size_t at = 0; at < values.size(); at += kMost) {
    const std::span<T> piece = values.subspan(at, std::min(kMost, values.size() - at));
    TRY_ASSIGN(const int64_t parity, NextSlots());
    ShowPart<T>(piece, parity);
    TRY(group_->Barrier(rank_));
    const std::span<T> sum = HostOf(piece);
    Sum<T>(parity, 0, sum);
    if (sum.data() != piece.data()) device_.Upload(piece.data(), sum.data(), static_cast<int64_t>(piece.size_bytes()));
  }
  return {};
}

template <class T>
Status Communicator::ReduceByShares(std::span<T> values, const Weights& weights) {
  if (group_->aborted()) return group_->AbortError();
  constexpr int64_t kLine = 64 / sizeof(T);  // values of a cache line, which ranks had better not share
  constexpr size_t kMost = kHostPieceBytes / sizeof(T);
  const auto piece_of = [&](int64_t piece) {
    const size_t at = static_cast<size_t>(piece) * kMost;
    return values.subspan(at, std::min(kMost, values.size() - at));
  };
  const int64_t first = calls_;
  const auto parity_of = [&](int64_t piece) { return (first + piece) & 1; };
  const auto result_of = [&](int64_t piece) { return reinterpret_cast<T*>(group_->result(parity_of(piece))); };
  const auto pieces = static_cast<int64_t>((values.size() + kMost - 1) / kMost);
  calls_ += pieces;
  return SumPieces(
      pieces, [&](int64_t piece) { ShowPart<T>(piece_of(piece), parity_of(piece)); },
      [&] { return group_->Barrier(rank_); },
      [&](int64_t piece) {
        const auto count = static_cast<int64_t>(piece_of(piece).size());
        const Share lines = weights.ShareOf((count + kLine - 1) / kLine, rank_);
        const int64_t begin = lines.begin * kLine, end = std::min(lines.end * kLine, count);
        if (begin < end) Sum<T>(parity_of(piece), begin, {result_of(piece) + begin, static_cast<size_t>(end - begin)});
      },
      [&](int64_t piece) {
        const std::span<T> total = piece_of(piece);
        device_.Upload(total.data(), result_of(piece), static_cast<int64_t>(total.size_bytes()));
      });
}

uint32_t Communicator::AnyReport() const {
  uint32_t all = 0;
  for (int64_t peer = 0; peer < size(); ++peer) all |= group_->report(peer);
  return all;
}

Status Communicator::GatherColumns(const ColumnRange& local, int64_t rows, int64_t full_columns,
                                   std::span<float> full) {
  const Timer timer(this);
  last_ = size() == 1 ? CollectiveFacts()
                      : CollectiveFacts{size(), "gather", "pieces", "pieces", "columns", "f32", "none", "nowhere"};
  // A piece is as many rows as fit when one rank holds all columns, or a window of one row where not even that fits.
  const bool there = peer_ != nullptr && !local.on_host;
  const int64_t most =
      (there ? kPeerPieceBytes : kSlotBytes - kGatherHeaderBytes) / static_cast<int64_t>(sizeof(float));
  const int64_t columns_at_once = std::clamp<int64_t>(full_columns, 1, most);
  const int64_t rows_at_once = most / columns_at_once;
  ColumnRange own = local;
  // Nothing may be used that came of a sum for which a rank did not wait.
  if (peer_ != nullptr && local.on_host) TRY(peer_->Check());
  if (!there && !local.on_host && device_.backend() != Backend::kCpu && local.columns > 0) {
    staging_.resize(static_cast<size_t>(rows * local.stride) * sizeof(float));
    device_.Download(staging_.data(), local.data, static_cast<int64_t>(staging_.size()));
    own.data = reinterpret_cast<const float*>(staging_.data());
  }
  for (int64_t row = 0; row < rows; row += rows_at_once) {
    for (int64_t column = 0; column < full_columns; column += columns_at_once) {
      const int64_t width = std::min(columns_at_once, full_columns - column);
      const ColumnRange piece = ColumnsWithin(own, row, column, width);
      const int64_t count = std::min(rows_at_once, rows - row);
      const std::span<float> out = full.empty() ? full : full.subspan(static_cast<size_t>(row * full_columns));
      if (there) {
        TRY(GatherOnDevice(piece, count, width, out.empty() ? nullptr : out.data() + column));
      } else {
        TRY(GatherPiece(piece, count, full_columns, out.empty() ? out : out.subspan(static_cast<size_t>(column))));
      }
    }
  }
  return {};
}

Status Communicator::GatherColumns(const ColumnRange& local, int64_t rows, int64_t full_columns, const RowsSink& sink) {
  constexpr int64_t kMost = kPeerPieceBytes / static_cast<int64_t>(sizeof(float));
  const int64_t at_once = std::max<int64_t>(1, kMost / full_columns);
  const bool there = peer_ != nullptr && full_columns <= kMost;
  std::vector<float> matrix;
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    ColumnRange piece = local;
    piece.data += row * local.stride;
    if (there) {
      const Timer timer(this);
      if (group_->aborted()) return group_->AbortError();
      const float* whole = peer_->Gather({piece.data, piece.stride, piece.columns, piece.begin, count, full_columns});
      if (whole != nullptr) sink(whole, row, count, device_.backend());
      TRY(peer_->Check());
      continue;
    }
    matrix.resize(rank_ == 0 ? static_cast<size_t>(count * full_columns) : 0);
    TRY(GatherColumns(piece, count, full_columns, std::span<float>(matrix)));
    if (rank_ == 0) sink(matrix.data(), row, count, Backend::kCpu);
  }
  if (!there) return {};
  // Nothing that came of a piece for which a rank did not wait may be used.
  if (rank_ == 0) device_.Wait();
  return peer_->Check();
}

Status Communicator::GatherOnDevice(const ColumnRange& piece, int64_t rows, int64_t width, float* out) {
  if (group_->aborted()) return group_->AbortError();
  const float* matrix = peer_->Gather({piece.data, piece.stride, piece.columns, piece.begin, rows, width});
  if (out != nullptr) device_.Download(out, matrix, rows * width * static_cast<int64_t>(sizeof(float)));
  return peer_->Check();
}

// One exchange of a gather: a line with the place of the columns, then the columns, dense.
Status Communicator::GatherPiece(const ColumnRange& piece, int64_t rows, int64_t full_columns, std::span<float> out) {
  TRY_ASSIGN(const int64_t parity, NextSlots());
  if (size() == 1) {  // nobody to exchange with
    for (int64_t i = 0; i < rows && !out.empty(); ++i) {
      std::copy_n(piece.data + i * piece.stride, piece.columns, out.data() + i * full_columns + piece.begin);
    }
    return {};
  }
  auto* header = reinterpret_cast<int64_t*>(group_->slot(rank_, parity));
  header[0] = piece.begin;
  header[1] = piece.columns;
  auto* slot = reinterpret_cast<float*>(group_->slot(rank_, parity) + kGatherHeaderBytes);
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(piece.data + i * piece.stride, piece.columns, slot + i * piece.columns);
  TRY(group_->Barrier(rank_));
  if (out.empty()) return {};
  for (int64_t peer = 0; peer < size(); ++peer) {
    const auto* from = reinterpret_cast<const int64_t*>(group_->slot(peer, parity));
    const auto* values = reinterpret_cast<const float*>(group_->slot(peer, parity) + kGatherHeaderBytes);
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(values + i * from[1], from[1], out.data() + i * full_columns + from[0]);
    }
  }
  return {};
}

Status Communicator::Hand(int64_t from, int64_t to, std::span<float> values) {
  if (from == to || (rank_ != from && rank_ != to)) return {};
  const Timer timer(this);
  const size_t most = kSlotBytes / sizeof(float);
  for (size_t begin = 0; begin < values.size(); begin += most) {
    const std::span<float> piece = values.subspan(begin, std::min(most, values.size() - begin));
    TRY(rank_ == to ? group_->Take(rank_, from, std::as_writable_bytes(piece))
                    : group_->Put(rank_, to, std::as_bytes(piece)));
  }
  return {};
}

Result<std::vector<std::byte>> Communicator::Broadcast(std::span<const std::byte> bytes, bool patient) {
  std::vector<std::byte> out;
  int64_t total = static_cast<int64_t>(bytes.size());
  int64_t done = 0;
  do {
    TRY_ASSIGN(const int64_t parity, NextSlots());
    std::byte* slot = group_->slot(0, parity);
    if (rank_ == 0) {
      std::memcpy(slot, &total, 8);
      const int64_t count = std::min(kSlotBytes - 8, total - done);
      if (count > 0) std::memcpy(slot + 8, bytes.data() + done, static_cast<size_t>(count));
    }
    TRY(group_->Barrier(rank_, patient && done == 0 && rank_ != 0));
    std::memcpy(&total, slot, 8);
    const int64_t count = std::min(kSlotBytes - 8, total - done);
    if (rank_ != 0) out.insert(out.end(), slot + 8, slot + 8 + count);
    done += count;
  } while (done < total);
  return out;
}

}  // namespace trivet::comm
