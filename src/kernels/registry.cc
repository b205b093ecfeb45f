// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/targets.h>

#include "base/str.h"
#include "kernels/reference.h"

namespace trivet::kernels {
namespace {

// Calls `visit(member)` for the row pointer of every family.
template <class Set, class Visit>
void ForEach(Set& set, Visit visit) {
  visit(set.embed), visit(set.rms_norm), visit(set.l2_norm), visit(set.gated_norm), visit(set.gemm), visit(set.rope);
  visit(set.kv_write), visit(set.attention), visit(set.sigmoid_gate), visit(set.conv1d), visit(set.delta_net);
  visit(set.route), visit(set.gated_act), visit(set.add_bias), visit(set.add_sums);
}

template <class F>
F FamilyOf(const KernelRow<F>*);  // only its return type is used

template <class Row>
using Family = decltype(FamilyOf(std::declval<Row>()));

template <class F>
std::vector<std::string> Runnable() {
  std::vector<std::string> names;
  for (const KernelRow<F>& row : F::Rows()) {
    if (row.target == 0 || (row.target & MachineTargets()) != 0) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace

int64_t MachineTargets() { return hwy::SupportedTargets(); }

std::span<const KernelRow<KvWrite>> KvWrite::Rows() {
  static constexpr KernelRow<KvWrite> kRows[] = {{"kv_write/ref", 0, KvWriteRef}};
  return kRows;
}
std::span<const KernelRow<Embed>> Embed::Rows() {
  static constexpr KernelRow<Embed> kRows[] = {{"embed/ref", 0, EmbedRef}};
  return kRows;
}
std::span<const KernelRow<Rope>> Rope::Rows() {
  static constexpr KernelRow<Rope> kRows[] = {{"rope/ref", 0, RopeRef}};
  return kRows;
}
std::span<const KernelRow<Route>> Route::Rows() {
  static constexpr KernelRow<Route> kRows[] = {{"route/ref", 0, RouteRef}};
  return kRows;
}
std::span<const KernelRow<AddBias>> AddBias::Rows() {
  static constexpr KernelRow<AddBias> kRows[] = {{"add_bias/ref", 0, AddBiasRef}};
  return kRows;
}
std::span<const KernelRow<AddSums>> AddSums::Rows() {
  static constexpr KernelRow<AddSums> kRows[] = {{"add_sums/ref", 0, AddSumsRef}};
  return kRows;
}

std::vector<std::string> Kernels::Names() const {
  std::vector<std::string> names;
  ForEach(*this, [&](const auto* row) { names.emplace_back(row->name); });
  return names;
}

std::vector<std::vector<std::string>> RunnableRows() {
  std::vector<std::vector<std::string>> all;
  const Kernels none;
  ForEach(none, [&](auto row) { all.push_back(Runnable<Family<decltype(row)>>()); });
  return all;
}

Result<Kernels> SelectKernels(const KernelOptions& options) {
  Kernels chosen;
  bool known = options.rows.empty();
  std::map<std::string, std::string> left = options.force;  // entries that named no row
  ForEach(chosen, [&](auto& row) {
    using F = Family<std::remove_reference_t<decltype(row)>>;
    row = Select<F>(MachineTargets(), options.rows);
    known |= row != nullptr;
    if (row == nullptr) row = Select<F>(MachineTargets(), "");
    const auto force = left.find(std::string(F::kName));
    if (force == left.end()) return;
    const KernelRow<F>* forced = Select<F>(MachineTargets(), force->second);
    if (forced == nullptr || forced->name != force->second) return;
    row = forced;
    left.erase(force);
  });
  if (known && left.empty()) return chosen;
  const std::string found = known ? fmt::format("{}={}", left.begin()->first, left.begin()->second) : options.rows;
  return MakeError(Code::kUsage, fmt::format("kernel rows: expected rows this machine runs ({}), found \"{}\"; choose "
                                             "one of them",
                                             RunnableRows(), Quote(found)));
}

}  // namespace trivet::kernels
