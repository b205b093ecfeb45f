// SPDX-License-Identifier: Apache-2.0
// Facts about a model on disk that pricing a layout needs.
#pragma once

#include "cache/caches.h"
#include "engine/open_model.h"
#include "plan/cost.h"

namespace trivet::engine {

/// Bytes of an average matrix element of each part in the checkpoint, and of what caches of that kind keep.
plan::ElementBytes BytesOf(const OpenedModel& model, cache::KvDtype kv_dtype);

}  // namespace trivet::engine
