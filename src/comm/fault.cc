// SPDX-License-Identifier: Apache-2.0
#include "comm/fault.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

#include "base/str.h"

namespace trivet::comm {
namespace {

struct KindRow {
  const char* name;
  FaultKind kind;
};
constexpr KindRow kKinds[] = {{"partial-bf16", FaultKind::kPartialBF16},
                              {"rank-order", FaultKind::kRankOrder},
                              {"split-k", FaultKind::kSplitK},
                              {"local-scale", FaultKind::kLocalScale},
                              {"fallback", FaultKind::kFallback},
                              {"hand-bf16", FaultKind::kHandBF16},
                              {"wrong-slot", FaultKind::kWrongSlot},
                              {"weight-bit", FaultKind::kWeightBit},
                              {"router-ulp", FaultKind::kRouterUlp},
                              {"local-topk", FaultKind::kLocalTopK},
                              {"combine-order", FaultKind::kCombineOrder},
                              {"split-kv", FaultKind::kSplitKV},
                              {"moved-map", FaultKind::kMovedMap},
                              {"other-split", FaultKind::kOtherSplit},
                              {"sp-first", FaultKind::kSpFirst},
                              {"other-replica", FaultKind::kOtherReplica},
                              {"die", FaultKind::kDie},
                              {"hang", FaultKind::kHang}};

}  // namespace

bool OnProcessorAlone(FaultKind kind) {
  return kind == FaultKind::kLocalTopK || kind == FaultKind::kCombineOrder || kind == FaultKind::kSplitKV ||
         kind == FaultKind::kMovedMap;
}

float RoundedToBF16(float value) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x8000U) & 0xFFFF0000U);
}

Result<Fault> ParseFault(const std::string& text) {
  std::vector<std::string_view> names;
  for (const KindRow& row : kKinds) names.emplace_back(row.name);
  const Error bad = MakeError(
      Code::kUsage,
      fmt::format("--fault: expected {}, with :rank=R, :site=N or :step=N behind it, found \"{}\"; correct it",
                  fmt::join(names, ", "), Quote(text)));
  const std::vector<std::string> parts = Split(text, ':');
  Fault fault;
  for (const KindRow& row : kKinds) {
    if (!parts.empty() && parts[0] == row.name) fault.kind = row.kind;
  }
  if (fault.kind == FaultKind::kNone) return bad;
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::vector<std::string> pair = Split(parts[i], '=');
    if (pair.size() != 2) return bad;
    const Result<int64_t> number = ParseInt(pair[1], "--fault");
    if (!number.ok() || *number < 0) return bad;
    const int64_t value = *number;
    if (pair[0] == "rank")
      fault.rank = value;
    else if (pair[0] == "site")
      fault.site = value;
    else if (pair[0] == "step")
      fault.step = value;
    else
      return bad;
  }
  return fault;
}

}  // namespace trivet::comm
