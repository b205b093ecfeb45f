// SPDX-License-Identifier: Apache-2.0
// Decodes blocks for the oracle test: `format_driver NAME` reads blocks of the format from standard input and writes
// float32 values to standard output. NAME is a block format or a dtype of single elements.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "quant/blocks.h"
#include "quant/convert.h"

namespace {

using namespace trivet;

constexpr const char* kNames[quant::kBlockFormatCount] = {"Q4_0", "Q4_1", "Q5_0",       "Q5_1",        "Q8_0", "Q4_K",
                                                          "Q5_K", "Q6_K", "MXFP4-GGUF", "MXFP4-PAIRS", "FP8"};

std::vector<std::byte> ReadAll() {
  std::vector<std::byte> bytes(size_t{1} << 16);
  size_t size = 0;
  while (const size_t got = std::fread(bytes.data() + size, 1, bytes.size() - size, stdin)) {
    size += got;
    if (size == bytes.size()) bytes.resize(2 * size);
  }
  bytes.resize(size);
  return bytes;
}

int Write(const std::vector<float>& values) {
  return std::fwrite(values.data(), sizeof(float), values.size(), stdout) == values.size() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::vector<std::byte> bytes = ReadAll();
  for (int i = 0; i < quant::kBlockFormatCount; ++i) {
    if (std::strcmp(argv[1], kNames[i]) != 0) continue;
    const auto format = static_cast<quant::BlockFormat>(i);
    const quant::BlockTraits traits = quant::TraitsOf(format);
    const size_t blocks = bytes.size() / static_cast<size_t>(traits.bytes);
    std::vector<float> values(blocks * static_cast<size_t>(traits.columns));
    quant::DecodeBlocks(format, bytes, values);
    return Write(values);
  }
  const std::optional<tensor::DType> dtype = tensor::ParseDType(argv[1]);
  if (!dtype.has_value()) return 2;
  std::vector<float> values(bytes.size() * 8 / static_cast<size_t>(tensor::DTypeBits(*dtype)));
  const Status status = quant::DecodeToFloat(*dtype, bytes, values);
  if (!status.ok()) return 2;
  return Write(values);
}
