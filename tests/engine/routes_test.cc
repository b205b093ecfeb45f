// SPDX-License-Identifier: Apache-2.0
#include "engine/routes.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "proof/rank_files.h"
#include "proof/synthetic.h"
#include "tests/io/temp_dir.h"

namespace trivet::engine {
namespace {

template <class T>
std::vector<T> Read(const checkpoint::Checkpoint& file, const std::string& name) {
  const checkpoint::TensorInfo* info = file.Find(name);
  CHECK_MSG(info != nullptr, name);
  std::vector<T> values(static_cast<size_t>(info->bytes) / sizeof(T));
  CHECK(file.Read(*info, 0, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

TEST(ExportRoutes, HasTheDecisionsOfEveryToken) {
  const TempDir dir;
  proof::SyntheticOptions options;
  options.sizes = {2, 2, 1, 2, 1};  // decisions of one token are on several ranks
  ASSERT_TRUE(ExportRoutes(proof::EncodeRun(proof::MakeSynthetic(options)), "run", dir.Path("r.safetensors")).ok());
  std::vector<std::string> notices;
  const auto file = checkpoint::Checkpoint::Open(dir.Path("r.safetensors"), &notices);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->Find("experts.1")->shape, (std::vector<int64_t>{5, 4, 2}));
  const auto experts = Read<int32_t>(*file, "experts.1");
  const auto weights = Read<float>(*file, "weights.1");
  const auto tokens = Read<int32_t>(*file, "tokens.1");
  for (int64_t position = 0; position < 5; ++position) {
    for (int64_t layer = 0; layer < 4; ++layer) {
      std::vector<record::RouteSlot> slots;
      const record::RouteHead head = proof::SyntheticRoute({layer, record::GlobalToken(1, position)}, &slots);
      EXPECT_EQ(tokens[static_cast<size_t>(position)], head.input);
      for (size_t slot = 0; slot < 2; ++slot) {
        const size_t at = static_cast<size_t>(position * 4 + layer) * 2 + slot;
        EXPECT_EQ(experts[at], slots[slot].expert);
        EXPECT_EQ(weights[at], slots[slot].weight);
      }
    }
  }
}

TEST(ExportRoutes, NeedsARunWithDecisions) {
  const TempDir dir;
  proof::SyntheticOptions options;
  options.level = record::Level::kDigest;
  proof::Files files = proof::EncodeRun(proof::MakeSynthetic(options));
  EXPECT_EQ(ExportRoutes(files, "run", dir.Path("r")).error().code, Code::kUnsupported);
  files.erase("seal.json");
  EXPECT_EQ(ExportRoutes(files, "run", dir.Path("r")).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace trivet::engine
