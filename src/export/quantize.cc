// SPDX-License-Identifier: Apache-2.0
#include "export/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/str.h"
#include "export/matrix_reader.h"
#include "quant/quantize.h"

namespace trivet::exporter {
namespace {

using checkpoint::TensorInfo;
using tensor::DType;

constexpr std::string_view kWeight = ".weight";

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// "X" of "X.weight".
std::string ModuleOf(const std::string& name) {
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

MatrixView WholeMatrix(const TensorInfo& info) { return {&info, 0, info.shape[0], info.shape[1], info.shape[1]}; }

// Matrices that are quantised into one pair of tensors, one below the other.
struct Stack {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  ThreadPool* pool = nullptr;
  std::vector<MatrixView> views;
};

// What a band of rows is quantised to.
struct Band {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
};

// A band of at most kFp8Block rows: a scale per kFp8Block columns.
void QuantizeFp8Band(std::span<const float> values, int64_t cols, ThreadPool* pool, Band* band) {
  const int64_t rows = static_cast<int64_t>(values.size()) / cols;
  std::vector<float> scales(static_cast<size_t>(CeilDiv(cols, quant::kFp8Block)));
  band->codes.resize(values.size());
  pool->ParallelFor(static_cast<int64_t>(scales.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t col = block * quant::kFp8Block, count = std::min(quant::kFp8Block, cols - col);
      const auto at = [&](int64_t row) { return static_cast<size_t>(row * cols + col); };
      float largest = 0;
      for (int64_t row = 0; row < rows; ++row) {
        largest = std::max(largest, quant::LargestMagnitude(values.subspan(at(row), static_cast<size_t>(count))));
      }
      const float scale = quant::Fp8Scale(largest);
      scales[static_cast<size_t>(block)] = scale;
      for (int64_t row = 0; row < rows; ++row) {
        quant::EncodeFp8(values.subspan(at(row), static_cast<size_t>(count)), scale,
                         std::span(band->codes).subspan(at(row), static_cast<size_t>(count)));
      }
    }
  });
  const auto bytes = std::as_bytes(std::span(scales));
  band->scales.assign(bytes.begin(), bytes.end());
}

// Any rows of whole blocks: blocks follow each other in memory.
void QuantizeMxfp4Band(std::span<const float> values, ThreadPool* pool, Band* band) {
  constexpr int64_t kGrain = 256;  // blocks of one call of the body, some ten microseconds
  const auto blocks = static_cast<int64_t>(values.size()) / quant::kMxfp4Block;
  band->codes.resize(values.size() / 2);
  band->scales.resize(static_cast<size_t>(blocks));
  pool->ParallelFor(blocks, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const auto codes = std::span(band->codes).subspan(static_cast<size_t>(b * quant::kMxfp4Block / 2));
      band->scales[static_cast<size_t>(b)] = std::byte{
          quant::QuantizeMxfp4(values.subspan(static_cast<size_t>(b * quant::kMxfp4Block), quant::kMxfp4Block),
                               codes.first(quant::kMxfp4Block / 2))};
    }
  });
}

// Quantises a stack and gives its codes or its scales to a sink. Both tensors are made from the source anew, so that
// no matrix is ever held.
Status Produce(const Stack& stack, QuantFormat format, std::vector<std::byte> Band::*part, const Sink& sink) {
  Band band;
  for (const MatrixView& view : stack.views) {
    const int64_t fit = kStagingBytes / (view.cols * static_cast<int64_t>(sizeof(float)));
    const int64_t rows = format == QuantFormat::kFp8 ? quant::kFp8Block : std::max<int64_t>(1, fit);
    TRY(ReadBands(*stack.checkpoint, view, rows, [&](int64_t, std::span<const float> values) -> Status {
      if (format == QuantFormat::kFp8) {
        QuantizeFp8Band(values, view.cols, stack.pool, &band);
      } else {
        QuantizeMxfp4Band(values, stack.pool, &band);
      }
      return sink(band.*part);
    }));
  }
  return {};
}

// Builds the plan, tensor by tensor.
class Planner {
 public:
  Planner(const Source& source, const QuantizeOptions& options)
      : source_(source), options_(options), packed_experts_(source.names.alternating_experts) {}

  Result<QuantizePlan> Build() {
    TRY(CheckRequest());
    std::set<std::string> known;
    for (const plan::SourceTensor& needed : plan::RequiredTensors(source_.geometry, source_.names)) {
      known.insert(needed.name);
      TRY(Add(needed, *source_.checkpoint.Find(needed.name)));
    }
    for (const TensorInfo& info : source_.checkpoint.tensors()) {
      plan_.source_bytes += info.bytes;
      if (!known.contains(info.name)) Keep(info);
    }
    // Loaders make a head also where it is the embedding.
    if (!options_.head) unquantised_.insert(ModuleOf(source_.names.head));
    plan_.model.config = source_.files.config;
    plan_.model.config["quantization_config"] = Config();
    plan_.model.source_dir = source_.files.dir;
    return std::move(plan_);
  }

 private:
  Status CheckRequest() const {
    TRY(CheckRewritable(source_));
    if (options_.head && source_.geometry.tied_head) {
      return MakeError(Code::kUsage,
                       "--head: expected a head with weights of its own, found one that is the embedding; leave the "
                       "flag out");
    }
    if (packed_experts_ && options_.format == QuantFormat::kFp8) {
      return MakeError(
          Code::kUnsupported,
          fmt::format("--format fp8: expected experts whose gate and up projections are apart, found those "
                      "of {}, for which loaders have no FP8 form; use --format mxfp4",
                      source_.geometry.family));
    }
    return {};
  }

  void Keep(const TensorInfo& info) {
    plan_.model.tensors.push_back(CopyOf(source_.checkpoint, info));
    ++plan_.kept;
    if (info.shape.size() >= 2 && info.name.ends_with(kWeight)) unquantised_.insert(ModuleOf(info.name));
  }

  Status Add(const plan::SourceTensor& needed, const TensorInfo& info) {
    const bool head = needed.name == source_.names.head;
    if (needed.kind == plan::TensorKind::kExperts) return AddExperts(info);
    const bool linear = needed.kind == plan::TensorKind::kLinear && !packed_experts_;
    if (linear || (head && options_.head)) return AddMatrix(ModuleOf(info.name), WholeMatrix(info));
    Keep(info);
    return {};
  }

  // Stacked experts: [E, out, in], or [E, in, out] with gate and up channels alternating.
  Status AddExperts(const TensorInfo& info) {
    const int64_t experts = info.shape[0], size = info.shape[1] * info.shape[2];
    if (packed_experts_) {
      Stack stack = {&source_.checkpoint, options_.pool, {}};
      const int64_t in = info.shape[1], out = info.shape[2];
      for (int64_t e = 0; e < experts; ++e) stack.views.push_back({&info, e * size, out, in, 1, out});
      TRY(CheckWidth(info.name, in));
      AddPair(stack,
              {info.name + "_blocks", DType::kU8, {experts, out, in / quant::kMxfp4Block, quant::kMxfp4Block / 2}},
              {info.name + "_scales", DType::kU8, {experts, out, in / quant::kMxfp4Block}});
      return {};
    }
    const size_t end = info.name.rfind('.');
    const std::string folder = info.name.substr(0, end), what = info.name.substr(end + 1);
    const bool fused = what == "gate_up_proj";
    const int64_t rows = fused ? info.shape[1] / 2 : info.shape[1], cols = info.shape[2];
    for (int64_t e = 0; e < experts; ++e) {
      int64_t first = e * size;
      for (const char* part : {"gate_proj", "up_proj"}) {
        const std::string name = fmt::format("{}.{}.{}", folder, e, fused ? part : what.c_str());
        TRY(AddMatrix(name, {&info, first, rows, cols, cols}));
        first += rows * cols;
        if (!fused) break;
      }
    }
    return {};
  }

  Status CheckWidth(const std::string& name, int64_t cols) const {
    if (options_.format != QuantFormat::kMxfp4 || cols % quant::kMxfp4Block == 0) return {};
    return MakeError(Code::kUnsupported,
                     fmt::format("{}: expected a width that is a multiple of {} for --format mxfp4, "
                                 "found {}; use --format fp8",
                                 name, quant::kMxfp4Block, cols));
  }

  Status AddMatrix(const std::string& module, const MatrixView& view) {
    TRY(CheckWidth(module, view.cols));
    const Stack stack = {&source_.checkpoint, options_.pool, {view}};
    if (options_.format == QuantFormat::kFp8) {
      AddPair(stack, {module + ".weight", DType::kF8E4M3, {view.rows, view.cols}},
              {module + ".weight_scale_inv",
               DType::kF32,
               {CeilDiv(view.rows, quant::kFp8Block), CeilDiv(view.cols, quant::kFp8Block)}});
    } else {
      AddPair(stack, {module + ".weight_packed", DType::kU8, {view.rows, view.cols / 2}},
              {module + ".weight_scale", DType::kU8, {view.rows, view.cols / quant::kMxfp4Block}});
    }
    return {};
  }

  void AddPair(const Stack& stack, checkpoint::TensorDecl codes, checkpoint::TensorDecl scales) {
    const QuantFormat format = options_.format;
    plan_.quantised += static_cast<int64_t>(stack.views.size());
    plan_.model.tensors.push_back(
        {std::move(codes), [stack, format](const Sink& sink) { return Produce(stack, format, &Band::codes, sink); }});
    plan_.model.tensors.push_back(
        {std::move(scales), [stack, format](const Sink& sink) { return Produce(stack, format, &Band::scales, sink); }});
  }

  Json Config() const {
    if (options_.format == QuantFormat::kFp8) {
      return {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {quant::kFp8Block, quant::kFp8Block}},
              {"modules_to_not_convert", unquantised_}};
    }
    if (packed_experts_) return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", unquantised_}};
    const Json weights = {{"num_bits", 4},
                          {"type", "float"},
                          {"symmetric", true},
                          {"strategy", "group"},
                          {"dynamic", false},
                          {"group_size", quant::kMxfp4Block},
                          {"scale_dtype", "torch.uint8"}};
    const Json group = {{"targets", Json::array({"Linear"})},
                        {"format", "mxfp4-pack-quantized"},
                        {"weights", weights},
                        {"input_activations", nullptr},
                        {"output_activations", nullptr}};
    return {{"quant_method", "compressed-tensors"},
            {"format", "mxfp4-pack-quantized"},
            {"quantization_status", "compressed"},
            {"config_groups", {{"group_0", group}}},
            {"ignore", unquantised_}};
  }

  const Source& source_;
  const QuantizeOptions& options_;
  const bool packed_experts_;  // the experts' packed form is the whole of what is quantised
  QuantizePlan plan_;
  std::set<std::string> unquantised_;  // modules with a matrix that stays
};

}  // namespace

Result<QuantFormat> ParseQuantFormat(const std::string& word) {
  if (word == "fp8") return QuantFormat::kFp8;
  if (word == "mxfp4") return QuantFormat::kMxfp4;
  return MakeError(Code::kUsage, fmt::format("--format: expected fp8 or mxfp4, found \"{}\"; choose one", Quote(word)));
}

Result<QuantizePlan> PlanQuantize(const Source& source, const QuantizeOptions& options) {
  return Planner(source, options).Build();
}

}  // namespace trivet::exporter
