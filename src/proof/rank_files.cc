// SPDX-License-Identifier: Apache-2.0
#include "proof/rank_files.h"

#include <fmt/format.h>

namespace trivet::proof {

Json CollectiveJson(const record::Collective& made, int64_t calls, const RankFacts& facts) {
  const std::vector<int64_t> ranks = made.group > 1 ? facts.group : std::vector<int64_t>{facts.rank};
  return {{"site", record::SiteName(made.site)},
          {"layer", made.layer},
          {"ranks", ranks},
          {"kind", made.kind},
          {"configured", made.configured},
          {"actual", made.actual},
          {"fallback_reason", nullptr},
          {"order", made.order},
          {"owners", made.group > 1 ? facts.owners(made.site, made.layer) : Json()},
          {"payload", made.payload},
          {"accumulate", made.accumulate},
          {"round_at", made.round_at},
          {"source", "communicator"},
          {"calls", calls},
          {"notes", ""}};
}

RankRun RankRunOf(const record::RunLog& log, const RankFacts& facts) {
  RankRun rank;
  rank.folder = rank.rank = facts.rank;
  rank.env = facts.env;
  rank.weights = facts.weights;
  rank.rows = log.rows();
  rank.decisions = log.decisions();
  rank.routes = {static_cast<uint32_t>(log.options().top_k), log.routes(), log.route_slots()};
  rank.bounds = log.bounds();
  rank.dispatches = log.dispatches();
  rank.executions = log.executions();
  for (const auto& [made, calls] : log.collectives()) rank.collectives.push_back(CollectiveJson(made, calls, facts));
  return rank;
}

Files RankFiles(const RankRun& rank, record::Level level) {
  Files files;
  const auto put = [&](const char* name, std::string bytes) { files[RankPath(rank.folder, name)] = std::move(bytes); };
  put("env.json", JsonText(rank.env));
  put("weights.json", JsonText(rank.weights));
  std::string lines;
  for (const Json& record : rank.collectives) lines += DumpJson(record) + "\n";
  put("collectives.jsonl", std::move(lines));
  put("rows.bin", EncodeRecords<record::RowRecord>(RecordKind::kRows, rank.rows));
  put("decisions.bin", EncodeRecords<record::DecisionRecord>(RecordKind::kDecisions, rank.decisions));
  put("bounds.bin", EncodeRecords<record::BoundRecord>(RecordKind::kBounds, rank.bounds));
  if (level >= record::Level::kRows) put("routes.bin", EncodeRoutes(rank.routes));
  if (level >= record::Level::kFull) {
    put("dispatch.bin", EncodeRecords<record::DispatchRecord>(RecordKind::kDispatch, rank.dispatches));
    put("execute.bin", EncodeRecords<record::ExecuteRecord>(RecordKind::kExecute, rank.executions));
  }
  return files;
}

Files EncodeRun(const RecordedRun& run) {
  Files files;
  files["run.json"] = JsonText(run.run);
  files["layout.json"] = JsonText(run.layout);
  for (size_t i = 0; i < run.placements.size(); ++i) {
    files[fmt::format("placement/{}.json", i)] = JsonText(run.placements[i]);
  }
  for (const RankRun& rank : run.ranks) files.merge(RankFiles(rank, run.level));
  if (run.level >= record::Level::kRows) files["logits.bin"] = EncodeLogits(run.logits);
  Seal(&files);
  return files;
}

std::string JsonText(const Json& json) { return DumpJson(json, 1) + "\n"; }

}  // namespace trivet::proof
