// SPDX-License-Identifier: Apache-2.0
#include "export/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/export/sources.h"

namespace trivet::exporter {
namespace {

using testing::HasSubstr;

TEST(Source, TakesPlainWeightsOfAnyFloat) {
  support::SyntheticModel extents;
  extents.some_f32 = true;
  const engine::SmallModel small(extents);
  EXPECT_TRUE(CheckRewritable(SourceOf(small.model())).ok());
}

TEST(Source, RefusesQuantisedOnesByTheTensor) {
  for (const char* name : {"llama-mxfp4", "qwen3-fp8"}) {
    const engine::OpenedModel model = support::Open(CaseDir(name));
    const Status status = CheckRewritable(SourceOf(model));
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().code, Code::kUnsupported);
    EXPECT_THAT(status.error().message, HasSubstr("_proj.weight: expected an unquantised weight"));
  }
}

TEST(Source, RefusesAConfigThatSaysQuantised) {
  const engine::SmallModel small;
  checkpoint::ModelFiles files = small.model().files;
  files.text_config["quantization_config"] = {{"quant_method", "fp8"}};
  const engine::OpenedModel& model = small.model();
  const Status status = CheckRewritable({files, model.checkpoint, model.geometry, model.names});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("\"quantization_config\""));
}

}  // namespace
}  // namespace trivet::exporter
