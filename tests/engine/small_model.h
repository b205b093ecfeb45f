// SPDX-License-Identifier: Apache-2.0
// A made-up model on disk and opened, for tests of the engine.
#pragma once

#include <cstdint>
#include <string>

#include "engine/open_model.h"
#include "tests/io/temp_dir.h"
#include "tests/support/model_runs.h"
#include "tests/support/synthetic_model.h"

namespace trivet::engine {

/// A model in a directory of its own. One at a time in a process.
class SmallModel {
 public:
  explicit SmallModel(const support::SyntheticModel& extents = {}) : model_(Write(dir_, extents)) {}

  const OpenedModel& model() const { return model_; }
  int64_t vocab() const { return model_.geometry.vocab; }
  const TempDir& dir() const { return dir_; }

 private:
  static OpenedModel Write(const TempDir& dir, const support::SyntheticModel& extents) {
    const Status written = support::WriteSyntheticModel(extents, dir.Path());
    CHECK_MSG(written.ok(), written.error().message);
    return support::Open(dir.Path());
  }

  const TempDir dir_;
  const OpenedModel model_;
};

}  // namespace trivet::engine
