// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/targets.h>

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "kernels/reference.h"

namespace trivet::kernels {
namespace {

// Calls `visit(member)` for the row pointer of every family.
template <class Set, class Visit>
void ForEach(Set& set, Visit visit) {
  visit(set.embed), visit(set.rms_norm), visit(set.add_norm), visit(set.l2_norm), visit(set.gated_norm);
  visit(set.gemm), visit(set.rope), visit(set.kv_write), visit(set.attention), visit(set.sigmoid_gate),
      visit(set.conv1d), visit(set.delta_net);
  visit(set.route), visit(set.gated_act), visit(set.add_bias), visit(set.add_sums), visit(set.round_sums),
      visit(set.map);
  visit(set.copy_rows), visit(set.group_pairs), visit(set.expert_gemm), visit(set.argmax), visit(set.draw);
}

template <class F>
F FamilyOf(const KernelRow<F>*);  // only its return type is used

template <class Row>
using Family = decltype(FamilyOf(std::declval<Row>()));

template <class F>
std::vector<std::string> Runnable(const Target& target) {
  std::vector<std::string> names;
  for (const KernelRow<F>& row : RowsOf<F>(target.backend)) {
    if (target.Runs(row.target, row.contract)) names.emplace_back(row.name);
  }
  return names;
}

// What a row needs of the machine.
std::string Needs(const Target& target, int64_t row_target) {
  if (target.backend == Backend::kCpu) return fmt::format("vector unit {}", hwy::TargetName(row_target));
  return fmt::format("compute capability {}", row_target);
}

// Why `row` is not the one that was chosen.
template <class F>
std::string Refusal(const Target& target, const KernelOptions& options, const KernelRow<F>& row,
                    const KernelRow<F>& chosen) {
  if (row.contract != Contract::kPortable && target.contract == Contract::kPortable) {
    return "gives the bits of matrix units; expected portable ones";
  }
  if (!target.Runs(row.target, row.contract)) {
    return fmt::format("needs {}; found a machine without it", Needs(target, row.target));
  }
  if (options.force.contains(std::string(F::kName))) return fmt::format("{} is forced", chosen.name);
  if (&row < &chosen) return fmt::format("rows called {} are wanted", options.rows);
  return fmt::format("{} stands before it", chosen.name);
}

template <class F>
std::vector<RowAnswer> Explain(const Target& target, const KernelOptions& options, const KernelRow<F>& chosen) {
  std::vector<RowAnswer> answers;
  const bool forced = options.force.contains(std::string(F::kName));
  for (const KernelRow<F>& row : RowsOf<F>(target.backend)) {
    const bool taken = &row == &chosen;
    const std::string reason = !taken   ? Refusal(target, options, row, chosen)
                               : forced ? "forced"
                                        : "the first that fits";
    answers.push_back({std::string(row.name), taken, reason});
  }
  return answers;
}

// A row that was forced and that there is not.
Error WrongForce(const Target& target, const std::pair<const std::string, std::string>& force) {
  std::string expected = "a kernel family such as gemm";
  for (const std::vector<std::string>& rows : RunnableRows(target)) {
    if (rows.empty() || rows[0].substr(0, rows[0].find('/')) != force.first) continue;
    expected = fmt::format("a row of {} that this machine runs, {}", force.first, fmt::join(rows, ", "));
  }
  return MakeError(Code::kUsage, fmt::format("--force: expected {}, found \"{}={}\"; see trivet doctor", expected,
                                             Quote(force.first), Quote(force.second)));
}

}  // namespace

Target CpuTarget() { return {Backend::kCpu, hwy::SupportedTargets()}; }

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

std::span<const KernelRow<RoundSums>> RoundSums::Rows() {
  static constexpr KernelRow<RoundSums> kRows[] = {{"round_sums/ref", 0, RoundSumsRef}};
  return kRows;
}
std::span<const KernelRow<Map>> Map::Rows() {
  static constexpr KernelRow<Map> kRows[] = {{"map/ref", 0, MapRef}};
  return kRows;
}
std::span<const KernelRow<CopyRows>> CopyRows::Rows() {
  static constexpr KernelRow<CopyRows> kRows[] = {{"copy_rows/ref", 0, CopyRowsRef}};
  return kRows;
}
std::span<const KernelRow<GroupPairs>> GroupPairs::Rows() {
  static constexpr KernelRow<GroupPairs> kRows[] = {{"group_pairs/ref", 0, GroupPairsRef}};
  return kRows;
}
std::span<const KernelRow<ExpertGemm>> ExpertGemm::Rows() {
  static constexpr KernelRow<ExpertGemm> kRows[] = {{"expert_gemm/grouped", 0, ExpertGemmGrouped},
                                                    {"expert_gemm/ref", 0, ExpertGemmRef}};
  return kRows;
}

std::vector<std::string> Kernels::Names() const {
  std::vector<std::string> names;
  ForEach(*this, [&](const auto* row) { names.emplace_back(row->name); });
  return names;
}

std::vector<std::vector<std::string>> RunnableRows(const Target& target) {
  std::vector<std::vector<std::string>> all;
  const Kernels none;
  ForEach(none, [&](auto row) { all.push_back(Runnable<Family<decltype(row)>>(target)); });
  return all;
}

Result<Kernels> SelectKernels(Target target, const KernelOptions& options) {
  if (options.contract == Contract::kPortable) target.contract = Contract::kPortable;
  Kernels chosen;
  bool known = options.rows.empty();
  std::map<std::string, std::string> left = options.force;  // entries that named no row
  ForEach(chosen, [&](auto& row) {
    using F = Family<std::remove_reference_t<decltype(row)>>;
    row = Select<F>(target, options.rows);
    known |= row != nullptr;
    if (row == nullptr) row = Select<F>(target, "");
    const auto force = left.find(std::string(F::kName));
    if (force == left.end()) return;
    const KernelRow<F>* forced = Select<F>(target, force->second);
    if (forced == nullptr || forced->name != force->second) return;
    row = forced;
    left.erase(force);
  });
  if (chosen.gemm == nullptr) {
    return MakeError(Code::kUsage, fmt::format("--backend: expected a build with {}, found one without; build where "
                                               "its compiler is, or choose --backend cpu",
                                               BackendName(target.backend)));
  }
  if (known && left.empty()) return chosen;
  if (known) return WrongForce(target, *left.begin());
  std::vector<std::string> names;  // without their families, each once
  for (const std::vector<std::string>& rows : RunnableRows(target)) {
    for (const std::string& row : rows) {
      std::string name = row.substr(row.find('/') + 1);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
  }
  return MakeError(Code::kUsage,
                   fmt::format("--rows: expected a name of rows that this machine runs, {}, found \"{}\"; "
                               "choose one of them",
                               fmt::join(names, ", "), Quote(options.rows)));
}

Result<std::vector<RowAnswer>> ExplainRows(Target target, const KernelOptions& options, const std::string& family) {
  TRY_ASSIGN(const Kernels chosen, SelectKernels(target, options));
  if (options.contract == Contract::kPortable) target.contract = Contract::kPortable;
  std::vector<RowAnswer> answers;
  std::vector<std::string> families;
  ForEach(chosen, [&](auto row) {
    using F = Family<decltype(row)>;
    families.emplace_back(F::kName);
    if (family == F::kName) answers = Explain<F>(target, options, *row);
  });
  if (!answers.empty()) return answers;
  return MakeError(Code::kUsage,
                   fmt::format("explain: expected allreduce or a kernel family ({}), found \"{}\"; choose "
                               "one of them",
                               fmt::join(families, ", "), Quote(family)));
}

}  // namespace trivet::kernels
