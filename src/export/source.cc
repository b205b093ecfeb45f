// SPDX-License-Identifier: Apache-2.0
#include "export/source.h"

#include <fmt/format.h>

namespace trivet::exporter {

Status CheckRewritable(const Source& source) {
  if (!source.checkpoint.metadata().empty()) {
    return MakeError(Code::kUnsupported,
                     "MODEL: expected a directory with config.json and safetensors files, found a GGUF file; convert "
                     "the directory it was made from");
  }
  for (const plan::SourceTensor& needed : plan::RequiredTensors(source.geometry, source.names)) {
    const checkpoint::TensorInfo* info = source.checkpoint.Find(needed.name);
    const bool plain = info != nullptr && (info->dtype == tensor::DType::kBF16 || info->dtype == tensor::DType::kF16 ||
                                           info->dtype == tensor::DType::kF32);
    if (plain) continue;
    return MakeError(Code::kUnsupported,
                     fmt::format("{}: expected an unquantised weight (BF16, F16 or F32), found {}; start from the "
                                 "unquantised checkpoint",
                                 needed.name, info == nullptr ? "a packed one" : tensor::DTypeName(info->dtype)));
  }
  for (const char* key : {"quantization_config", "compression_config"}) {
    const Json* config = Find(source.files.text_config, key);
    if (config == nullptr || config->is_null()) continue;
    return MakeError(
        Code::kUnsupported,
        fmt::format("config.json: expected no \"{}\", found one; start from the unquantised checkpoint", key));
  }
  return {};
}

}  // namespace trivet::exporter
