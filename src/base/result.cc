// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

namespace trivet {
namespace {

struct CodeRow {
  Code code;
  const char* name;
  int exit_status;
};

// The one table of codes; docs/errors.md shows it to users.
constexpr CodeRow kCodes[] = {
    {Code::kUsage, "usage", 2},
    {Code::kNotFound, "not found", 3},
    {Code::kInvalid, "invalid", 4},
    {Code::kUnsupported, "unsupported", 5},
    {Code::kInfeasible, "infeasible", 6},
    {Code::kCapacity, "capacity", 7},
    {Code::kIo, "io", 8},
    {Code::kPeer, "peer", 9},
    {Code::kDiffers, "differs", 10},
};

const CodeRow& Row(Code code) {
  for (const CodeRow& row : kCodes) {
    if (row.code == code) return row;
  }
  CHECK(false);
  return kCodes[0];
}

}  // namespace

int ExitStatus(Code code) { return Row(code).exit_status; }
const char* CodeName(Code code) { return Row(code).name; }

}  // namespace trivet
