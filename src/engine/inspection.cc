// SPDX-License-Identifier: Apache-2.0
#include "engine/inspection.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>

#include "base/str.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/stored_weight.h"
#include "engine/finite_scan.h"
#include "engine/open_model.h"
#include "engine/prompts.h"
#include "engine/token_check.h"
#include "plan/families.h"
#include "plan/plan_json.h"
#include "plan/tensor_use.h"

namespace trivet::engine {
namespace {

// Builds an Inspection part by part; each part is skipped where what it needs could not be read.
class Inspector {
 public:
  explicit Inspector(const InspectOptions& options) : options_(options) {}

  Inspection Run(const std::string& path) {
    ReadFiles(path);
    if (!files_) return std::move(found_);
    found_.facts["dtype"] = files_->dtype;
    geometry_ = Keep(plan::ReadGeometry({files_->text_config, files_->rope}));
    if (geometry_) DropImpossibleStops(geometry_->vocab, &*files_, &found_.notices);
    found_.facts["stop_tokens"] = files_->stop_tokens;
    if (geometry_) found_.facts["geometry"] = plan::GeometryJson(*geometry_);
    if (checkpoint_) {
      if (geometry_) ReadTensors();
      ListTensors();
      if (options_.deep) ScanWeights();
    }
    ReadText(path);
    return std::move(found_);
  }

 private:
  // The value of a part, or nothing and a defect.
  template <class T>
  std::optional<T> Keep(Result<T> part) {
    if (part.ok()) return std::move(part).value();
    found_.defects.push_back(part.error().message);
    return std::nullopt;
  }

  void ReadFiles(const std::string& path) {
    const bool gguf = checkpoint::IsGguf(path);
    if (!gguf) files_ = Keep(checkpoint::OpenModelDir(path));
    if (!gguf && !files_) return;
    checkpoint_ = Keep(checkpoint::Checkpoint::Open(path, &found_.notices));
    if (gguf && checkpoint_) files_ = Keep(checkpoint::BindGguf(path, &*checkpoint_));
  }

  // Tensors that the geometry needs, what they are to it, and those nobody asked for.
  void ReadTensors() {
    const std::optional<checkpoint::QuantConfig> quant = Keep(checkpoint::ReadQuantConfig(*files_));
    const std::optional<plan::SourceNames> names = Keep(plan::DetectNames(
        *geometry_, [&](const std::string& name) { return checkpoint::HasWeight(*checkpoint_, name); }));
    if (!quant || !names) return;
    for (std::string& defect : TensorDefects(*geometry_, *names, *checkpoint_, *quant)) {
      found_.defects.push_back(std::move(defect));
    }
    ExtraTensors extra = FindExtraTensors(*geometry_, *names, *checkpoint_, *quant);
    for (std::string& notice : extra.skipped) found_.notices.push_back(std::move(notice));
    for (std::string& defect : extra.unknown) found_.defects.push_back(std::move(defect));
    geometry_->weight_block = LargestBlock(*geometry_, *names, *checkpoint_, *quant);
    const std::map<std::string, plan::TensorUse> uses = plan::TensorUses(*geometry_, *names);
    for (const plan::SourceTensor& needed : plan::RequiredTensors(*geometry_, *names)) {
      const auto weight = checkpoint::FindWeight(*checkpoint_, *quant, needed.name, needed.shape);
      const auto use = uses.find(needed.name);
      if (weight.ok() && use != uses.end()) AddUse(needed.name, use->second, *weight);
    }
  }

  // Keeps a logical weight's use under the names of the tensors that hold it.
  void AddUse(const std::string& name, const plan::TensorUse& use, const checkpoint::StoredWeight& weight) {
    Json facts = {{"logical", name}, {"role", plan::RoleName(use.role)}, {"parts", use.parts}};
    if (!use.axis.empty()) facts.update({{"axis", use.axis}, {"units", use.units}, {"even_ranks", use.even_ranks}});
    uses_[weight.weight->name] = facts;
    if (weight.scale == nullptr) return;
    facts["role"] = "scales";
    uses_[weight.scale->name] = std::move(facts);
    if (weight.storage == checkpoint::Storage::kMxfp4) scales_.bytes.insert(weight.scale->name);
    if (weight.storage == checkpoint::Storage::kFp8) scales_.fp8.insert(weight.scale->name);
  }

  void ListTensors() {
    std::map<std::string, std::pair<int64_t, int64_t>> by_dtype;  // count and bytes
    Json list = Json::array();
    for (const checkpoint::TensorInfo& info : checkpoint_->tensors()) {
      auto& [count, bytes] = by_dtype[tensor::DTypeName(info.dtype)];
      ++count;
      bytes += info.bytes;
      if (!options_.tensors) continue;
      Json row = {{"name", info.stored_name.empty() ? info.name : info.stored_name},
                  {"dtype", tensor::DTypeName(info.dtype)},
                  {"shape", info.shape},
                  {"file", checkpoint_->FileName(info.file)},
                  {"offset", info.offset}};
      const auto use = uses_.find(info.name);
      if (use != uses_.end()) row.update(use->second);
      list.push_back(std::move(row));
    }
    Json dtypes = Json::object();
    for (const auto& [dtype, sum] : by_dtype) dtypes[dtype] = {{"tensors", sum.first}, {"bytes", sum.second}};
    Json& tensors = found_.facts["tensors"];
    tensors = {{"count", checkpoint_->tensors().size()}, {"bytes", checkpoint_->total_bytes()}, {"dtypes", dtypes}};
    if (options_.tensors) tensors["list"] = std::move(list);
  }

  void ScanWeights() {
    std::optional<ScanFindings> scan = Keep(ScanTensors(*checkpoint_, scales_, options_.progress));
    if (!scan) return;
    for (std::string& defect : scan->defects) found_.defects.push_back(std::move(defect));
    for (std::string& notice : scan->notices) found_.notices.push_back(std::move(notice));
    found_.facts["weights_read"] = checkpoint_->total_bytes();
  }

  void ReadText(const std::string& path) {
    const std::optional<Prompts> prompts = Keep(checkpoint_ ? Prompts::Open(path, *checkpoint_) : Prompts::Open(path));
    if (!prompts) return;
    found_.facts["tokenizer"] = {{"vocab_size", prompts->tokenizer().vocab_size()},
                                 {"chat_template", prompts->has_template()}};
    for (std::string& defect : TokenDefects(*files_, *prompts, geometry_ ? geometry_->vocab : 0)) {
      found_.defects.push_back(std::move(defect));
    }
    if (prompts->has_template()) return;
    found_.defects.push_back(
        "chat template: expected one beside the tokenizer, found none; conversations are refused, plain text goes on "
        "(generate --raw)");
  }

  const InspectOptions& options_;
  Inspection found_;
  std::optional<checkpoint::ModelFiles> files_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::optional<plan::Geometry> geometry_;
  std::map<std::string, Json> uses_;  // by the names of tensors in the checkpoint
  ScaleTensors scales_;
};

}  // namespace

Inspection Inspect(const std::string& path, const InspectOptions& options) { return Inspector(options).Run(path); }

}  // namespace trivet::engine
