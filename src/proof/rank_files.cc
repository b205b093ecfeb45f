// SPDX-License-Identifier: Apache-2.0
#include "proof/rank_files.h"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

namespace trivet::proof {
namespace {

// What the files of a rank hold, wherever it lies.
struct RankParts {
  const Json &env, &weights;
  std::span<const Json> collectives;
  std::span<const record::RowRecord> rows;
  std::span<const record::DecisionRecord> decisions;
  const Routes& routes;
  std::span<const record::BoundRecord> bounds;
  std::span<const record::DispatchRecord> dispatches;
  std::span<const record::ExecuteRecord> executions;
};

Files FilesOf(int64_t folder, record::Level level, const RankParts& rank) {
  Files files;
  const auto put = [&](const char* name, std::string bytes) { files[RankPath(folder, name)] = std::move(bytes); };
  put("env.json", JsonText(rank.env));
  put("weights.json", JsonText(rank.weights));
  std::string lines;
  for (const Json& record : rank.collectives) lines += DumpJson(record) + "\n";
  put("collectives.jsonl", std::move(lines));
  put("rows.bin", EncodeRecords(RecordKind::kRows, rank.rows));
  put("decisions.bin", EncodeRecords(RecordKind::kDecisions, rank.decisions));
  put("bounds.bin", EncodeRecords(RecordKind::kBounds, rank.bounds));
  if (level >= record::Level::kRows) put("routes.bin", EncodeRoutes(rank.routes));
  if (level >= record::Level::kFull) {
    put("dispatch.bin", EncodeRecords(RecordKind::kDispatch, rank.dispatches));
    put("execute.bin", EncodeRecords(RecordKind::kExecute, rank.executions));
  }
  return files;
}

}  // namespace

Json CollectiveJson(const record::Collective& made, int64_t calls, const RankFacts& facts) {
  const std::vector<int64_t>& group = record::InContext(made.site) ? facts.context : facts.group;
  const std::vector<int64_t> ranks = made.group > 1 ? group : std::vector<int64_t>{facts.rank};
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

Files RankFiles(const RankRun& rank, record::Level level) {
  return FilesOf(rank.folder, level,
                 {rank.env, rank.weights, rank.collectives, rank.rows, rank.decisions, rank.routes, rank.bounds,
                  rank.dispatches, rank.executions});
}

Files LogFiles(const record::RunLog& log, const RankFacts& facts) {
  std::vector<Json> collectives;
  for (const auto& [made, calls] : log.collectives()) collectives.push_back(CollectiveJson(made, calls, facts));
  const Routes routes{static_cast<uint32_t>(log.options().top_k), log.routes(), log.route_slots()};
  return FilesOf(facts.rank, log.options().level,
                 {facts.env, facts.weights, collectives, log.rows(), log.decisions(), routes, log.bounds(),
                  log.dispatches(), log.executions()});
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
