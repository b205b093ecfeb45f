// SPDX-License-Identifier: Apache-2.0
// What a kernel row is, and how one is chosen. A family F is a struct with its Args, a name and its rows; a row is a
// function that computes the family on machines with a certain vector unit. Rows of one family give the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace trivet::kernels {

/// One way to compute family F. Rows stand in preference order; the first that the machine supports is taken.
template <class F>
struct KernelRow {
  std::string_view name;  // "gemm/avx512"
  int64_t target;         // the Highway target bit it needs; 0 for plain C++
  void (*run)(const typename F::Args& args);
};

/// The vector targets of this machine, as Highway's bit set.
int64_t MachineTargets();

/// The first row that `targets` supports and that is called `name`, with its family or without (empty: any); null when
/// there is none.
template <class F>
const KernelRow<F>* Select(int64_t targets, std::string_view name) {
  for (const KernelRow<F>& row : F::Rows()) {
    if (row.target != 0 && (row.target & targets) == 0) continue;
    if (name.empty() || name == row.name || name == row.name.substr(row.name.find('/') + 1)) return &row;
  }
  return nullptr;
}

}  // namespace trivet::kernels
