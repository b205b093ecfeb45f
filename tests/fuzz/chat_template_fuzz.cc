// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any template with any context. The input is a template, a zero byte, and a JSON context; without a zero
// byte the context is a short conversation.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view context_text =
      zero == std::string_view::npos
          ? std::string_view(
                R"({"messages":[{"role":"user","content":"h\u00e9 x"},{"role":"assistant","content":null}],"n":3})")
          : input.substr(zero + 1);
  const auto context = trivet::ParseJson(context_text, "context");
  const auto parsed = trivet::text::ChatTemplate::Parse(std::string(input.substr(0, zero)));
  if (!parsed.ok()) return 0;
  const auto text = parsed->Render(context.ok() ? *context : trivet::Json::object());
  if (text.ok()) (void)trivet::DumpJson(trivet::text::NormalizeMessages(trivet::Json::array({*text})));
  return 0;
}
