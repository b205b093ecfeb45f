// SPDX-License-Identifier: Apache-2.0
// Any text as JSON: what is accepted survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = trivet::ParseJson(text, "fuzz");
  if (!parsed.ok()) return 0;
  const std::string written = trivet::DumpJson(*parsed);
  const auto again = trivet::ParseJson(written, "fuzz");
  CHECK_MSG(again.ok(), written);
  CHECK_MSG(trivet::DumpJson(*again) == written, written);
  return 0;
}
