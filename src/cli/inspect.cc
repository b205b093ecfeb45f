// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "engine/inspection.h"

namespace trivet::cli {
namespace {

struct InspectFlags {
  std::string model;
  bool json = false, tensors = false, deep = false;
};

std::string Plain(const Json& value) { return value.is_string() ? value.get<std::string>() : DumpJson(value); }

// One tensor on two lines: what the file says, and what it is to the family.
void PrintTensor(const Json& tensor) {
  const auto text = [&](const char* key) {
    const Json* value = Find(tensor, key);
    return value == nullptr ? std::string() : Plain(*value);
  };
  std::printf("  %s  %s %s, %s at %s\n", text("name").c_str(), text("dtype").c_str(), text("shape").c_str(),
              text("file").c_str(), text("offset").c_str());
  if (Find(tensor, "role") == nullptr) {
    std::puts("    not used");
    return;
  }
  const std::string logical = text("logical") == text("name") ? "" : text("logical") + ", ";
  std::string parts;
  for (const Json& part : tensor["parts"]) parts += (parts.empty() ? "" : " and ") + part.get<std::string>();
  const std::string cut = Find(tensor, "axis") == nullptr ? "whole on every rank"
                                                          : fmt::format("axis {}, {}, even over ranks {}", text("axis"),
                                                                        text("units"), text("even_ranks"));
  std::printf("    %s%s of %s; %s\n", logical.c_str(), text("role").c_str(), parts.c_str(), cut.c_str());
}

// Nested objects as indented "key: value" lines.
void PrintFacts(const Json& facts, int indent) {
  for (const auto& [key, value] : facts.items()) {
    if (value.is_object()) {
      std::printf("%*s%s\n", indent, "", key.c_str());
      PrintFacts(value, indent + 2);
    } else if (key == "list") {
      for (const Json& tensor : value) PrintTensor(tensor);
    } else {
      std::printf("%*s%-*s %s\n", indent, "", 26 - indent, key.c_str(), Plain(value).c_str());
    }
  }
}

Status Execute(const InspectFlags& flags) {
  TRY_ASSIGN(const std::string path, ModelDir(flags.model));
  ProgressBar bar(fmt::format("reading {}", flags.model), flags.deep);
  const engine::Inspection found = engine::Inspect(
      path, {flags.tensors, flags.deep, [&bar](int64_t done, int64_t total) { bar.Show(done, total); }});
  bar.Finish();
  if (flags.json) {
    Json out = found.facts;
    out["notices"] = found.notices;
    out["defects"] = found.defects;
    std::puts(DumpJson(out, 2).c_str());
  } else {
    PrintFacts(found.facts, 0);
    for (const std::string& notice : found.notices) std::printf("notice: %s\n", notice.c_str());
    for (const std::string& defect : found.defects) std::printf("defect: %s\n", defect.c_str());
  }
  if (found.defects.empty()) return {};
  return MakeError(Code::kInvalid, fmt::format("{}: expected a model without defects, found {}; the first: {}",
                                               flags.model, found.defects.size(), found.defects[0]));
}

}  // namespace

Run AddInspect(CLI::App* app) {
  auto flags = std::make_shared<InspectFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option("MODEL", flags->model, "directory with config.json and safetensors files, GGUF file, or \"demo\"")
      ->required();
  app->add_flag("--json", flags->json, "facts, notices and defects as JSON");
  app->add_flag("--tensors", flags->tensors,
                "also every tensor: dtype, shape and place, its use in the family, and the rank counts that cut it "
                "evenly");
  app->add_flag("--deep", flags->deep, "also read every weight and look for NaN, infinity and E8M0 scales of 0xFF");
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
