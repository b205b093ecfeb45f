// SPDX-License-Identifier: Apache-2.0
#include "engine/replay.h"

#include <fmt/format.h>

#include "proof/gates.h"

namespace trivet::engine {

Result<RecordedWork> ReadWork(const proof::Files& files, const std::string& what) {
  proof::RecordedRun run;
  if (const proof::Gate gate = proof::CheckRun(files, &run)) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected a run that stands by itself, found {}: {}; record it anew", what,
                                 proof::VerdictName(gate->verdict), gate->message));
  }
  RecordedWork work;
  const Json& model = Member(run.run, "model");
  if (model.is_string()) work.model = model.get<std::string>();
  work.level = run.level;
  work.forced = Member(run.run, "routes").is_object();
  for (const Json& knob : Member(run.run, "knobs")) {
    if (Member(knob, "path") != "kv.dtype") continue;
    if (const Json& actual = Member(knob, "actual"); actual.is_string()) work.kv_dtype = actual.get<std::string>();
  }
  for (const proof::RequestFacts& request : run.tokens.requests) {
    const auto number = static_cast<size_t>(request.request);
    if (work.logits_from.size() <= number) work.logits_from.resize(number + 1);
    work.logits_from[number] = request.logits_from;
    if (request.computed == 0) continue;
    work.requests.push_back(request.request);
    work.tokens.emplace_back(static_cast<size_t>(request.computed));
  }
  for (const proof::RankRun& rank : run.ranks) {
    for (const record::RowRecord& row : rank.rows) {
      if (row.token == record::kPadding) continue;
      for (size_t i = 0; i < work.requests.size(); ++i) {
        const int64_t position = record::PositionOf(row.token);
        if (work.requests[i] != record::RequestOf(row.token)) continue;
        if (position < static_cast<int64_t>(work.tokens[i].size())) {
          work.tokens[i][static_cast<size_t>(position)] = row.input;
        }
      }
    }
  }
  return work;
}

Status Replay(Engine* engine, const RecordedWork& work) {
  for (size_t i = 0; i < work.requests.size(); ++i) {
    sched::Request request;
    request.id = SeqId{work.requests[i]};
    request.prompt = work.tokens[i];
    request.logits = sched::LogitsMode::kAll;
    TRY(engine->Submit(std::move(request)));
  }
  bool more = true;
  while (more) {
    TRY_ASSIGN(more, engine->Step([](const sched::Span&, const SpanOutput&, bool) -> Result<std::optional<TokenId>> {
      return std::optional<TokenId>();
    }));
  }
  return {};
}

}  // namespace trivet::engine
