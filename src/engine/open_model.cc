// SPDX-License-Identifier: Apache-2.0
#include "engine/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/str.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/stored_weight.h"
#include "engine/store_weight.h"
#include "kernels/weight_format.h"
#include "plan/families.h"

namespace trivet::engine {
Result<std::string> ResolveModel(const std::string& model, const std::string& program_dir,
                                 const std::string& source_models) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) return model;
  const bool plain_name = !model.empty() && model.find('/') == std::string::npos && model[0] != '.';
  for (const std::string& folder :
       {program_dir + "/models", program_dir + "/../models", program_dir + "/../share/trivet/models", source_models}) {
    const std::string path = folder + "/" + model;
    if (plain_name && std::filesystem::is_directory(path, ignored)) return path;
  }
  if (std::filesystem::exists(model, ignored)) return model;  // a file: opening it says what is wrong with it
  return MakeError(
      Code::kNotFound,
      fmt::format("MODEL: expected a directory with config.json and safetensors files, a GGUF file, or \"demo\", "
                  "found nothing at \"{}\"; check the path",
                  model));
}

void DropImpossibleStops(int64_t vocab, checkpoint::ModelFiles* files, std::vector<std::string>* notices) {
  std::vector<int64_t>& stops = files->stop_tokens;  // sorted
  const auto first = std::lower_bound(stops.begin(), stops.end(), vocab);
  if (first == stops.end()) return;
  notices->push_back(fmt::format(
      "eos_token_id: expected ids below {}, the vocabulary, found {}: not used, since no "
      "token has such an id{}",
      vocab, fmt::join(first, stops.end(), ", "), first == stops.begin() ? "; no other one ends a text" : ""));
  stops.erase(first, stops.end());
}

std::vector<std::string> TensorDefects(const plan::Geometry& geometry, const plan::SourceNames& names,
                                       const checkpoint::Checkpoint& checkpoint, const checkpoint::QuantConfig& quant) {
  std::vector<std::string> defects;
  for (const plan::SourceTensor& needed : plan::RequiredTensors(geometry, names)) {
    const auto found = checkpoint::FindWeight(checkpoint, quant, needed.name, needed.shape);
    if (!found.ok()) defects.push_back(found.error().message);
  }
  return defects;
}

ExtraTensors FindExtraTensors(const plan::Geometry& geometry, const plan::SourceNames& names,
                              const checkpoint::Checkpoint& checkpoint, const checkpoint::QuantConfig& quant) {
  std::set<std::string> needed;
  for (const plan::SourceTensor& tensor : plan::RequiredTensors(geometry, names)) {
    const auto found = checkpoint::FindWeight(checkpoint, quant, tensor.name, tensor.shape);
    if (!found.ok()) continue;
    needed.insert(found->weight->name);
    if (found->scale != nullptr) needed.insert(found->scale->name);
  }
  std::map<std::string, std::pair<int, std::string>> reasons;  // reason, empty for none -> count and first name
  for (const checkpoint::TensorInfo& info : checkpoint.tensors()) {
    if (needed.contains(info.name)) continue;
    auto& [count, first] = reasons[plan::SkippedReason(info.name, static_cast<int64_t>(geometry.layers.size()))];
    if (count++ == 0) first = info.name;
  }
  ExtraTensors extra;
  for (const auto& [reason, found] : reasons) {
    const std::string which = fmt::format("{} tensors such as {}: ", found.first, found.second);
    if (reason.empty()) {
      extra.unknown.push_back(which + "not part of this family, not loaded");
    } else {
      extra.skipped.push_back(which + reason);
    }
  }
  return extra;
}

int64_t LargestBlock(const plan::Geometry& geometry, const plan::SourceNames& names,
                     const checkpoint::Checkpoint& checkpoint, const checkpoint::QuantConfig& quant) {
  int64_t block = geometry.weight_block;
  for (const plan::SourceTensor& needed : plan::RequiredTensors(geometry, names)) {
    if (needed.shape.size() < 2) continue;
    const auto weight = checkpoint::FindWeight(checkpoint, quant, needed.name, needed.shape);
    if (weight.ok()) block = std::max(block, kernels::FormatRow(FormatOf(*weight)).columns);
  }
  return block;
}

// The weights that `files` describe, made up.
Result<checkpoint::Checkpoint> Dummy(const checkpoint::ModelFiles& files, checkpoint::DummyFormat format) {
  TRY_ASSIGN(const plan::Geometry geometry, plan::ReadGeometry({files.text_config, files.rope}));
  plan::SourceNames names;
  names.prefix = "model.";
  names.fused_experts = false;  // every product is a weight of its own
  std::vector<checkpoint::DummyWeight> weights;
  for (plan::SourceTensor& needed : plan::RequiredTensors(geometry, names)) {
    const bool product = needed.kind == plan::TensorKind::kLinear;
    weights.push_back({std::move(needed.name), std::move(needed.shape), product});
  }
  return checkpoint::MakeDummy(weights, format);
}

Result<OpenedModel> OpenModel(const std::string& name, const std::string& dir,
                              const std::optional<checkpoint::DummyFormat>& dummy) {
  std::vector<std::string> notices;
  checkpoint::ModelFiles files;
  const bool gguf = checkpoint::IsGguf(dir);
  if (!gguf) {
    TRY_ASSIGN(files, checkpoint::OpenModelDir(dir));
    TRY(plan::ReadGeometry(
        {files.text_config, files.rope}));  // a family that is not known is named before a missing file
  }
  if (gguf && dummy.has_value()) {
    return MakeError(Code::kUsage, fmt::format("--dummy-weights: expected a directory with config.json, found \"{}\"; "
                                               "choose one, or leave it out",
                                               Quote(dir)));
  }
  TRY_ASSIGN(checkpoint::Checkpoint checkpoint,
             dummy.has_value() ? Dummy(files, *dummy) : checkpoint::Checkpoint::Open(dir, &notices));
  if (gguf) {
    TRY_ASSIGN(files, checkpoint::BindGguf(dir, &checkpoint));
  }
  TRY_ASSIGN(plan::Geometry geometry, plan::ReadGeometry({files.text_config, files.rope}));
  if (files.whole_norms) geometry.norm_offset = 0;
  DropImpossibleStops(geometry.vocab, &files, &notices);
  checkpoint::QuantConfig quant;  // what is made up has its own
  if (!dummy.has_value()) {
    TRY_ASSIGN(quant, checkpoint::ReadQuantConfig(files));
  }
  TRY_ASSIGN(plan::SourceNames names, plan::DetectNames(geometry, [&](const std::string& tensor) {
               return checkpoint::HasWeight(checkpoint, tensor);
             }));
  const std::vector<std::string> defects = TensorDefects(geometry, names, checkpoint, quant);
  if (!defects.empty()) {
    return MakeError(Code::kInvalid, defects.size() == 1
                                         ? defects[0]
                                         : fmt::format("{} ({} more like it; `trivet inspect` lists all)", defects[0],
                                                       defects.size() - 1));
  }
  geometry.weight_block = LargestBlock(geometry, names, checkpoint, quant);
  ExtraTensors extra = FindExtraTensors(geometry, names, checkpoint, quant);
  // No config beside a GGUF file says what is computed: its tensors do, and one without a place would be left out of
  // it.
  if (gguf && !extra.unknown.empty()) {
    return MakeError(Code::kUnsupported,
                     fmt::format("{}: expected only tensors of its architecture, found {}; use another file", dir,
                                 extra.unknown[0]));
  }
  for (std::vector<std::string>* kind : {&extra.skipped, &extra.unknown}) {
    for (std::string& notice : *kind) notices.push_back(std::move(notice));
  }
  return OpenedModel{name,
                     std::move(files),
                     std::move(geometry),
                     std::move(checkpoint),
                     std::move(names),
                     std::move(quant),
                     std::move(notices)};
}

}  // namespace trivet::engine
