// SPDX-License-Identifier: Apache-2.0
// config.json of a padded model.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/config_file.h"
#include "plan/geometry.h"

namespace trivet::exporter {

/// The config of a model with its counts replaced by those of `padded`, checked by reading it again.
/// Errors:  kInfeasible when no values of its keys describe that geometry.
Result<Json> PaddedConfig(const checkpoint::ModelFiles& files, const plan::Geometry& stock,
                          const plan::Geometry& padded);

}  // namespace trivet::exporter
