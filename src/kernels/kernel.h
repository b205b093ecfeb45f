// SPDX-License-Identifier: Apache-2.0
// What a kernel row is, and how one is chosen. A family F is a struct with its Args, a name and its rows; a row is a
// function that computes the family on machines with a certain vector unit. Rows of one family and one contract give
// the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/backend.h"

namespace trivet::kernels {

/// Whose bits a row gives (docs/numerics.md).
enum class Contract {
  kPortable,  // those of the reference, on every machine
  kMatrix,    // those of matrix instructions, on devices of one architecture
};

/// One way to compute family F. Rows stand in preference order; the first that the machine supports is taken.
///   F::Rows()      rows of the CPU: they have computed when they return
///   F::CudaRows()  rows of a GPU: every pointer in Args, and the elements of its spans, is memory of the calling
///                  thread's device, and the work is put into that thread's default stream. Empty without CUDA.
template <class F>
struct KernelRow {
  std::string_view name;  // "gemm/avx512"
  int64_t target;         // what it needs: a Highway target bit, or a compute capability such as 90; 0: nothing
  void (*run)(const typename F::Args& args);
  Contract contract = Contract::kPortable;
};

/// Where kernels run, what that machine can do, and whose bits are wanted: portable rows serve every contract.
struct Target {
  Backend backend = Backend::kCpu;
  int64_t level = 0;  // vector targets as Highway's bit set, or the device's compute capability
  Contract contract = Contract::kPortable;

  /// Whether a row that needs `target` and gives the bits of `rows` runs here.
  bool Runs(int64_t target, Contract rows) const {
    if (rows != Contract::kPortable && rows != contract) return false;
    return target == 0 || (backend == Backend::kCpu ? (target & level) != 0 : target <= level);
  }
};

/// This machine's processor.
Target CpuTarget();

/// Rows of F for a backend.
template <class F>
std::span<const KernelRow<F>> RowsOf(Backend backend) {
  return backend == Backend::kCpu ? F::Rows() : F::CudaRows();
}

/// The first row that `target` runs and that is called `name`, with its family or without (empty: any); null when
/// there is none.
template <class F>
const KernelRow<F>* Select(const Target& target, std::string_view name) {
  for (const KernelRow<F>& row : RowsOf<F>(target.backend)) {
    if (!target.Runs(row.target, row.contract)) continue;
    if (name.empty() || name == row.name || name == row.name.substr(row.name.find('/') + 1)) return &row;
  }
  return nullptr;
}

}  // namespace trivet::kernels
