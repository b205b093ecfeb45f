// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "engine/prompts.h"
#include "plan/families.h"
#include "plan/plan_json.h"

namespace trivet::cli {
namespace {

// What inspection found. Parts that could not be read are absent and have a defect instead.
struct Findings {
  Json facts = Json::object();
  std::vector<std::string> notices, defects;
};

void InspectTensors(const checkpoint::Checkpoint& checkpoint, bool all, Findings* findings) {
  std::map<std::string, std::pair<int64_t, int64_t>> by_dtype;  // count and bytes
  Json list = Json::array();
  for (const checkpoint::TensorInfo& info : checkpoint.tensors()) {
    auto& [count, bytes] = by_dtype[tensor::DTypeName(info.dtype)];
    ++count;
    bytes += info.bytes;
    if (all) {
      list.push_back({{"name", info.name},
                      {"dtype", tensor::DTypeName(info.dtype)},
                      {"shape", info.shape},
                      {"file", checkpoint.FileName(info.file)},
                      {"offset", info.offset}});
    }
  }
  Json dtypes = Json::object();
  for (const auto& [dtype, sum] : by_dtype) dtypes[dtype] = {{"tensors", sum.first}, {"bytes", sum.second}};
  findings->facts["tensors"] = {
      {"count", checkpoint.tensors().size()}, {"bytes", checkpoint.total_bytes()}, {"dtypes", dtypes}};
  if (all) findings->facts["tensors"]["list"] = list;
}

// Tensors that the geometry needs, and those nobody asked for.
void InspectCoverage(const plan::Geometry& geometry, const checkpoint::Checkpoint& checkpoint,
                     const checkpoint::QuantConfig& quant, Findings* findings) {
  const Result<plan::SourceNames> names =
      plan::DetectNames(geometry, [&](const std::string& name) { return checkpoint.Find(name) != nullptr; });
  if (!names.ok()) {
    findings->defects.push_back(names.error().message);
    return;
  }
  for (std::string& defect : engine::TensorDefects(geometry, *names, checkpoint, quant))
    findings->defects.push_back(std::move(defect));
  for (std::string& notice : engine::ExtraTensors(geometry, *names, checkpoint, quant))
    findings->notices.push_back(std::move(notice));
}

void InspectText(const std::string& dir, const plan::Geometry* geometry, Findings* findings) {
  const Result<engine::Prompts> prompts = engine::Prompts::Open(dir);
  if (!prompts.ok()) {
    findings->defects.push_back(prompts.error().message);
    return;
  }
  const int64_t vocab = prompts->tokenizer().vocab_size();
  findings->facts["tokenizer"] = {{"vocab_size", vocab}, {"chat_template", prompts->has_template()}};
  if (geometry != nullptr && vocab > geometry->vocab) {
    findings->defects.push_back(
        fmt::format("tokenizer: expected at most {} ids, as many as the model has, found {}; the "
                    "tokenizer belongs to another model",
                    geometry->vocab, vocab));
  }
  if (!prompts->has_template()) findings->notices.push_back("no chat template: generate continues plain text only");
}

Findings Inspect(const std::string& dir, bool all_tensors) {
  Findings findings;
  const Result<checkpoint::ModelFiles> files = checkpoint::OpenModelDir(dir);
  if (!files.ok()) {
    findings.defects.push_back(files.error().message);
    return findings;
  }
  findings.facts["dtype"] = files->dtype;
  findings.facts["stop_tokens"] = files->stop_tokens;
  const Result<plan::Geometry> geometry = plan::ReadGeometry({files->text_config, files->rope});
  if (geometry.ok()) {
    findings.facts["geometry"] = plan::GeometryJson(*geometry);
  } else {
    findings.defects.push_back(geometry.error().message);
  }
  const Result<checkpoint::Checkpoint> checkpoint = checkpoint::Checkpoint::Open(dir, &findings.notices);
  if (checkpoint.ok()) {
    InspectTensors(*checkpoint, all_tensors, &findings);
    const Result<checkpoint::QuantConfig> quant = checkpoint::ReadQuantConfig(*files);
    if (!quant.ok()) findings.defects.push_back(quant.error().message);
    if (geometry.ok() && quant.ok()) InspectCoverage(*geometry, *checkpoint, *quant, &findings);
  } else {
    findings.defects.push_back(checkpoint.error().message);
  }
  InspectText(dir, geometry.ok() ? &*geometry : nullptr, &findings);
  return findings;
}

// Nested objects as indented "key: value" lines.
void PrintFacts(const Json& facts, int indent) {
  for (const auto& [key, value] : facts.items()) {
    if (value.is_object()) {
      std::printf("%*s%s\n", indent, "", key.c_str());
      PrintFacts(value, indent + 2);
    } else {
      std::string text = value.is_string() ? value.get<std::string>() : DumpJson(value);
      std::printf("%*s%-*s %s\n", indent, "", 26 - indent, key.c_str(), text.c_str());
    }
  }
}

Status Execute(const std::string& model, bool json, bool all_tensors) {
  TRY_ASSIGN(const std::string dir, engine::ResolveModel(model, ProgramDir(), TRIVET_SOURCE_MODELS));
  const Findings findings = Inspect(dir, all_tensors);
  if (json) {
    Json out = findings.facts;
    out["notices"] = findings.notices;
    out["defects"] = findings.defects;
    std::puts(DumpJson(out, 2).c_str());
  } else {
    PrintFacts(findings.facts, 0);
    for (const std::string& notice : findings.notices) std::printf("notice: %s\n", notice.c_str());
    for (const std::string& defect : findings.defects) std::printf("defect: %s\n", defect.c_str());
  }
  if (findings.defects.empty()) return {};
  return MakeError(Code::kInvalid, fmt::format("{}: expected a model without defects, found {}; the first: {}", model,
                                               findings.defects.size(), findings.defects[0]));
}

}  // namespace

Run AddInspect(CLI::App* app) {
  struct Flags {
    std::string model;
    bool json = false, tensors = false;
  };
  auto flags = std::make_shared<Flags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option("MODEL", flags->model, "directory with config.json and safetensors files, or \"demo\"")->required();
  app->add_flag("--json", flags->json, "facts, notices and defects as JSON");
  app->add_flag("--tensors", flags->tensors, "also every tensor's name, dtype, shape and place");
  return [flags] { return Execute(flags->model, flags->json, flags->tensors); };
}

}  // namespace trivet::cli
