// SPDX-License-Identifier: Apache-2.0
#include "engine/joint_step.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace trivet::engine {
namespace {

void PutNumber(uint64_t number, std::vector<std::byte>* bytes) {
  const auto* from = reinterpret_cast<const std::byte*>(&number);
  bytes->insert(bytes->end(), from, from + sizeof(number));
}

Result<uint64_t> TakeNumber(std::span<const std::byte>* bytes) {
  uint64_t number = 0;
  if (bytes->size() < sizeof(number)) {
    return MakeError(Code::kInvalid, "joint step: expected a number, found its end; this is a bug, please report it");
  }
  std::memcpy(&number, bytes->data(), sizeof(number));
  *bytes = bytes->subspan(sizeof(number));
  return number;
}

}  // namespace

std::vector<std::byte> JointStep::Serialize() const {
  std::vector<std::byte> bytes;
  PutNumber(hidden ? 1 : 0, &bytes);
  for (const sched::StepPlan& plan : plans) {
    const std::vector<std::byte> one = plan.Serialize();
    PutNumber(one.size(), &bytes);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

Result<JointStep> JointStep::Deserialize(std::span<const std::byte> bytes) {
  JointStep step;
  TRY_ASSIGN(const uint64_t hidden, TakeNumber(&bytes));
  step.hidden = hidden != 0;
  while (!bytes.empty()) {
    TRY_ASSIGN(const uint64_t size, TakeNumber(&bytes));
    if (size > bytes.size()) {
      return MakeError(Code::kInvalid,
                       "joint step: expected a whole plan, found a part; this is a bug, please report "
                       "it");
    }
    TRY_ASSIGN(sched::StepPlan plan, sched::StepPlan::Deserialize(bytes.first(size)));
    step.plans.push_back(std::move(plan));
    bytes = bytes.subspan(size);
  }
  return step;
}

}  // namespace trivet::engine
