// SPDX-License-Identifier: Apache-2.0
// Any JSON as config.json.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "checkpoint/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trivet;
  const auto config = ParseJson(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!config.ok()) return 0;
  const auto text = checkpoint::TextConfig(*config, "fuzz");
  if (!text.ok()) return 0;
  const auto rope = checkpoint::RopeParameters(*text, "fuzz");
  if (rope.ok()) CHECK(rope->is_object() && !rope->empty());
  std::vector<int64_t> stop_tokens;
  if (checkpoint::AddStopTokens(*text, "fuzz", &stop_tokens).ok()) {
    for (const int64_t token : stop_tokens) CHECK(token >= 0 && token <= INT32_MAX);
  }
  return 0;
}
