// SPDX-License-Identifier: Apache-2.0
// Replay: the tokens of a recorded run once more, whatever a sampler would say, under any layout.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "proof/run_files.h"

namespace trivet::engine {

/// What a run computed.
struct RecordedWork {
  std::string model;  // as its user gave it
  record::Level level = record::Level::kDigest;
  std::vector<int64_t> requests;             // their numbers
  std::vector<std::vector<TokenId>> tokens;  // that were computed of each
  std::vector<int64_t> logits_from;          // by number of request
  std::string kv_dtype;                      // how keys and values were kept, which is part of what was computed
  bool forced = false;                       // whether experts came from a file
};

/// Reads a sealed run.  Errors: kInvalid with the verdict where it does not stand by itself.
///   what     its name for messages
Result<RecordedWork> ReadWork(const proof::Files& files, const std::string& what);

/// Computes the work on an engine that records. Sealing is the caller's.  Errors: those of Engine::Step.
Status Replay(Engine* engine, const RecordedWork& work);

}  // namespace trivet::engine
