// SPDX-License-Identifier: Apache-2.0
#include "model/runtime.h"

#include <algorithm>
#include <vector>

namespace trivet::model {

namespace {

// How a call went whose result stands where it was made.
template <class T>
Status Done(const Result<T>& result) {
  return result.ok() ? Status() : Status(result.error());
}

}  // namespace

Status Pipeline::Send(std::span<float> x) const {
  if (!bf16) return world.Hand(world.rank(), after, x);
  std::vector<float> rounded(x.size());
  std::transform(x.begin(), x.end(), rounded.begin(), comm::RoundedToBF16);
  return world.Hand(world.rank(), after, rounded);
}

void Runtime::RunGemm(const kernels::Gemm::Args& args, const Matrix& w) const {
  const int64_t tiles = args.m == 1 ? kTilesOfRow : 1;  // of a group
  const auto groups_of = [&](const Matrix::Part& part) { return (part.packed.tiles() + tiles - 1) / tiles; };
  int64_t groups = 0;
  for (const Matrix::Part& part : w.parts) groups += groups_of(part);
  Parallel(groups, args.m * w.n * w.k, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // group of the part
    for (const Matrix::Part& part : w.parts) {
      const int64_t count = groups_of(part);
      kernels::Gemm::Args run = args;
      run.numerics = numerics;
      run.flags = tables.flags;
      run.w = &part.packed;
      if (run.y != nullptr) run.y += part.row;
      if (run.sums_fixed != nullptr) run.sums_fixed += part.row;
      if (run.sums_fast != nullptr) run.sums_fast += part.row;
      run.tile_begin = std::max<int64_t>(begin - first, 0) * tiles;
      run.tile_end = std::min(std::min(end - first, count) * tiles, part.packed.tiles());
      if (run.tile_begin < run.tile_end) kernels.gemm->run(run);
      first += count;
    }
  });
}

void Runtime::MultiplyStrided(const float* x, int64_t x_stride, int64_t m, const Matrix& w, float* y,
                              int64_t y_stride) const {
  if (w.n == 0 || m == 0) return;
  kernels::Gemm::Args args;
  args.x = x;
  args.x_stride = x_stride;
  args.m = m;
  args.y = y;
  args.y_stride = y_stride;
  RunGemm(args, w);
}

void Runtime::AddBias(const Matrix& bias, int64_t m, const float* row_scale, const Sums& sums) const {
  AddProduct(tables.one, 0, m, bias, row_scale, sums);
}

void Runtime::AddBias(const float* bias, int64_t m, int64_t n, std::span<float> y) const {
  if (bias != nullptr) RunParallel(*kernels.add_bias, kernels::AddBias::Args{y.data(), n, bias, n}, m, m * n);
}

void Runtime::AddProduct(const float* x, int64_t x_stride, int64_t m, const Matrix& w, const float* row_scale,
                         const Sums& sums) const {
  if (w.n == 0 || w.k == 0 || m == 0) return;
  kernels::Gemm::Args args;
  args.x = x;
  args.x_stride = x_stride;
  args.m = m;
  args.sums_fixed = sums.fixed.empty() ? nullptr : sums.fixed.data();
  args.sums_fast = sums.fast.empty() ? nullptr : sums.fast.data();
  args.y_stride = w.n;
  args.row_scale = row_scale;
  RunGemm(args, w);
}

void Runtime::MapInPlace(kernels::MapFunction function, float parameter, std::span<float> x) const {
  const auto count = static_cast<int64_t>(x.size());
  RunParallel(*kernels.map, kernels::Map::Args{function, parameter, x.data(), 1, x.data()}, count,
              count * kElementWork);
}

void Runtime::Norm(std::span<const float> x, const float* weight, std::span<float> y) const {
  const int64_t hidden = geometry.hidden;
  kernels::RmsNorm::Args args;
  args.x = x.data();
  args.y = y.data();
  args.x_rows = args.y_rows = {1, hidden, 0};
  args.weight = weight;
  args.n = hidden;
  args.eps = static_cast<float>(geometry.norm_eps);
  args.offset = static_cast<float>(geometry.norm_offset);
  const auto rows = static_cast<int64_t>(x.size()) / hidden;
  RunParallel(*kernels.rms_norm, args, rows, rows * hidden * kElementWork);
}

void Runtime::NormInPlace(float* x, const kernels::NestedRows& rows, int64_t tokens, const NormWeight& norm) const {
  if (norm.weight == nullptr || rows.heads == 0) return;
  kernels::RmsNorm::Args args;
  args.x = x;
  args.y = x;
  args.x_rows = args.y_rows = rows;
  args.weight = norm.weight;
  args.n = norm.n;
  args.eps = static_cast<float>(norm.eps);
  args.offset = static_cast<float>(norm.offset);
  RunParallel(*kernels.rms_norm, args, tokens * rows.heads, tokens * rows.heads * norm.n * kElementWork);
}

Sums Runtime::NewSums(int64_t tokens) const {
  const int64_t count = tokens * geometry.hidden;
  Sums sums;
  if (numerics == kernels::Numerics::kExact) {
    sums.fixed = workspace.Take<int64_t>(count);
  } else {
    sums.fast = workspace.Take<float>(count);
  }
  Clear(sums);
  return sums;
}

void Runtime::Clear(const Sums& sums) const {
  const auto clear = [&](auto values) {
    const auto count = static_cast<int64_t>(values.size());
    Parallel(count, count * kElementWork, [&](int64_t begin, int64_t end) {
      device.Zero(values.data() + begin, (end - begin) * static_cast<int64_t>(sizeof(values[0])));
    });
  };
  clear(sums.fixed);
  clear(sums.fast);
}

Status Runtime::AddResidual(const Branch& branch, const Sums& sums, std::span<float> x, const NextBranch& next) const {
  const device::Workspace::Frame frame(&workspace);
  const auto count = static_cast<int64_t>(x.size());
  const int64_t n = geometry.hidden;
  const bool rounds = branch.partial && adds_floats && !sums.fixed.empty();
  const std::span<float> fast = rounds ? workspace.Take<float>(count) : sums.fast;
  kernels::AddNorm::Args norm{x.data(),
                              sums.fixed.empty() ? nullptr : sums.fixed.data(),
                              fast.empty() ? nullptr : fast.data(),
                              next.y.data(),
                              next.weight,
                              n,
                              static_cast<float>(geometry.norm_eps),
                              static_cast<float>(geometry.norm_offset),
                              0,
                              count / n};
  const bool norm_follows = branch.norm == nullptr && next.weight != nullptr;
  const bool joined = branch.partial && norm_follows && comm.JoinsNorm(norm);
  if (joined) {
    TRY(comm.AllReduceAddNorm(norm));
  } else if (branch.partial) {
    if (rounds) {
      const kernels::RoundSums::Args round{sums.fixed.data(), fast.data()};
      RunParallel(*kernels.round_sums, round, count, count * kElementWork);
      norm.sums_fixed = nullptr;
    }
    // A rank's own rows come to stand where the sums begin.
    TRY(norm.sums_fixed != nullptr ? Done(comm.ReduceRows(sums.fixed, n, branch.keepers))
                                   : Done(comm.ReduceRows(fast, n, branch.keepers)));
  } else {
    if (!sums.fixed.empty()) comm.OwnRows(sums.fixed, n, branch.keepers);
    if (!sums.fast.empty()) comm.OwnRows(sums.fast, n, branch.keepers);
  }
  if (norm_follows && !joined) {
    RunParallel(*kernels.add_norm, norm, count / n, 2 * count * kElementWork);
  } else if (!norm_follows) {
    AddTotal(branch, {x.data(), norm.sums_fixed, norm.sums_fast}, x);
    if (next.weight != nullptr) {
      Norm(x, next.weight, next.y);
      Clear(sums);
    }
  }
  LogCollective(branch.site, branch.layer, comm.last());
  LogRows(branch.site, branch.layer, x);
  return {};
}

Result<comm::RowsView> Runtime::JoinRows(const RowsSite& at, std::span<const float> kept, int64_t columns,
                                         std::span<const comm::RowRun> keepers, std::span<float> memory) const {
  TRY_ASSIGN(const comm::RowsView rows, comm.GatherRows({kept.data(), columns}, columns, keepers, memory));
  LogCollective(at.site, at.layer, comm.last());
  return rows;
}

void Runtime::AddTotal(const Branch& branch, const kernels::AddSums::Args& total, std::span<float> x) const {
  const auto count = static_cast<int64_t>(x.size());
  if (branch.norm == nullptr) return RunParallel(*kernels.add_sums, total, count, count * kElementWork);
  const device::Workspace::Frame frame(&workspace);
  const std::span<float> out = workspace.Take<float>(count);
  device.Zero(out.data(), static_cast<int64_t>(out.size_bytes()));
  kernels::AddSums::Args args = total;
  args.x = out.data();
  RunParallel(*kernels.add_sums, args, count, count * kElementWork);
  Norm(out, branch.norm, out);
  RunParallel(*kernels.add_sums, kernels::AddSums::Args{x.data(), nullptr, out.data()}, count, count * kElementWork);
}

void Runtime::LogRows(record::Site site, int64_t layer, std::span<const float> values) const {
  if (log == nullptr) return;
  std::vector<float> host;
  log->Rows(site, layer, OnHost(values, &host));
}

void Runtime::LogLogitsRows(record::Site site, std::span<const float> values) const {
  if (log == nullptr) return;
  std::vector<float> host;
  log->LogitsRows(site, static_cast<int64_t>(geometry.layers.size()), OnHost(values, &host));
}

void Runtime::LogCollective(record::Site site, int64_t layer, const comm::CollectiveFacts& facts) const {
  if (log == nullptr) return;
  log->Count({site, static_cast<int16_t>(layer), facts.ranks, facts.kind, facts.configured, facts.actual, facts.order,
              facts.payload, facts.accumulate, facts.round_at});
}

}  // namespace trivet::model
