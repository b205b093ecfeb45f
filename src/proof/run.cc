// SPDX-License-Identifier: Apache-2.0
#include "proof/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/str.h"

namespace trivet::proof {
namespace {

Finding OtherForm(const std::string& what) {
  return Found(Verdict::kSchemaMismatch, what + ": not of a form that this version reads", {{"file", what}});
}

// Reads the files of a run one by one; after the first failure nothing more is read.
class Reader {
 public:
  explicit Reader(const Files& files) : files_(files) {}

  const std::string* Need(const std::string& path) {
    const auto found = files_.find(path);
    if (found != files_.end()) return &found->second;
    Fail(Found(Verdict::kIncompleteArtifact, path + ": missing", {{"file", path}}));
    return nullptr;
  }
  Json NeedJson(const std::string& path) {
    const std::string* text = Need(path);
    if (text == nullptr) return {};
    Result<Json> json = ParseJson(*text, path);
    if (json.ok() && json->is_object()) return std::move(json).value();
    Fail(OtherForm(path));
    return Json::object();
  }
  template <class T>
  void NeedRecords(RecordKind kind, const std::string& path, std::vector<T>* out) {
    Take(
        path, [&](const std::string& bytes) { return DecodeRecords<T>(kind, bytes, path); }, out);
  }
  template <class T, class Decode>
  void Take(const std::string& path, const Decode& decode, T* out) {
    const std::string* bytes = Need(path);
    if (bytes == nullptr) return;
    Result<T> decoded = decode(*bytes);
    if (!decoded.ok()) return Fail(Found(Verdict::kSchemaMismatch, decoded.error().message, {{"file", path}}));
    *out = std::move(decoded).value();
  }
  void Fail(Finding finding) {
    if (!gate_) gate_ = std::move(finding);
  }
  const Gate& gate() const { return gate_; }

 private:
  const Files& files_;
  Gate gate_;
};

void ReadRank(Reader& reader, record::Level level, RankRun* rank) {
  const auto path = [&](const char* name) { return RankPath(rank->folder, name); };
  rank->env = reader.NeedJson(path("env.json"));
  rank->weights = reader.NeedJson(path("weights.json"));
  reader.NeedRecords(RecordKind::kRows, path("rows.bin"), &rank->rows);
  reader.NeedRecords(RecordKind::kDecisions, path("decisions.bin"), &rank->decisions);
  reader.NeedRecords(RecordKind::kBounds, path("bounds.bin"), &rank->bounds);
  if (level >= record::Level::kRows) {
    const std::string at = path("routes.bin");
    reader.Take(
        at, [&](const std::string& bytes) { return DecodeRoutes(bytes, at); }, &rank->routes);
  }
  if (level >= record::Level::kFull) {
    reader.NeedRecords(RecordKind::kDispatch, path("dispatch.bin"), &rank->dispatches);
    reader.NeedRecords(RecordKind::kExecute, path("execute.bin"), &rank->executions);
  }
  const std::string* lines = reader.Need(path("collectives.jsonl"));
  if (lines == nullptr) return;
  for (const std::string& line : Split(*lines, '\n')) {
    if (line.empty()) continue;
    Result<Json> json = ParseJson(line, path("collectives.jsonl"));
    if (!json.ok() || !json->is_object()) return reader.Fail(OtherForm(path("collectives.jsonl")));
    rank->collectives.push_back(std::move(json).value());
  }
}

// Numbers of the rank folders that there are.
std::set<int64_t> Folders(const Files& files, Reader& reader) {
  std::set<int64_t> folders;
  for (const auto& [path, bytes] : files) {
    if (!path.starts_with("ranks/")) continue;
    const std::vector<std::string> parts = Split(path, '/');
    const Result<int64_t> number = parts.size() == 3 ? ParseInt(parts[1], path) : Result<int64_t>(int64_t{-1});
    if (!number.ok() || *number < 0 || RankPath(*number, parts[2]) != path) {
      reader.Fail(OtherForm(path));
      return {};
    }
    folders.insert(*number);
  }
  return folders;
}

// Records are sorted when a run is sealed, and everything after this relies on it.
bool Sorted(const RankRun& rank) {
  using record::BoundRecord;
  using record::DecisionRecord;
  using record::RouteHead;
  const auto decisions = [](const auto& a, const auto& b) {
    return std::tie(a.layer, a.token) < std::tie(b.layer, b.token);
  };
  const auto bounds = [](const BoundRecord& a, const BoundRecord& b) {
    return std::tie(a.layer, a.site, a.token) < std::tie(b.layer, b.site, b.token);
  };
  const auto by_step = [](const auto& a, const auto& b) {
    return std::tie(a.layer, a.token, a.slot, a.step) < std::tie(b.layer, b.token, b.slot, b.step);
  };
  return std::is_sorted(rank.decisions.begin(), rank.decisions.end(), decisions) &&
         std::is_sorted(rank.routes.heads.begin(), rank.routes.heads.end(), decisions) &&
         std::is_sorted(rank.bounds.begin(), rank.bounds.end(), bounds) &&
         std::is_sorted(rank.dispatches.begin(), rank.dispatches.end(), by_step) &&
         std::is_sorted(rank.executions.begin(), rank.executions.end(), by_step);
}

// The layers that run.json lists under `of`.
Gate ReadLayers(const RecordedRun& run, const char* of, std::vector<int64_t>* out) {
  const Json& layers = Member(Member(run.run, of), "layers");
  if (!layers.is_array()) return OtherForm("run.json");
  for (const Json& layer : layers) {
    if (!layer.is_number_integer() || layer < 0 || layer >= run.tokens.layers()) return OtherForm("run.json");
    out->push_back(layer.get<int64_t>());
  }
  return std::is_sorted(out->begin(), out->end()) ? std::nullopt : Gate(OtherForm("run.json"));
}

Gate CheckClaims(const RecordedRun& run) {
  const std::vector<std::string> supported = ClaimsOf(run.level);
  const Json& claims = Member(run.run, "claims");
  if (!claims.is_array()) return OtherForm("run.json");
  for (const Json& claim : claims) {
    if (std::find(supported.begin(), supported.end(), claim) != supported.end()) continue;
    return Found(Verdict::kCorruptArtifact,
                 fmt::format("run.json: claims the gate {}, for which a run of level {} has no evidence",
                             DumpJson(claim), record::LevelName(run.level)),
                 {{"claim", claim}});
  }
  return std::nullopt;
}

Gate ReadRanks(Reader& reader, const Files& files, RecordedRun* run) {
  for (const int64_t folder : Folders(files, reader)) {
    RankRun rank;
    rank.folder = folder;
    ReadRank(reader, run->level, &rank);
    if (reader.gate()) return reader.gate();
    const Json& number = Member(rank.env, "rank");
    if (!number.is_number_integer() || !Sorted(rank)) return OtherForm(RankPath(folder, "env.json"));
    rank.rank = number.get<int64_t>();
    run->ranks.push_back(std::move(rank));
  }
  return reader.gate();
}

}  // namespace

std::vector<std::string> ClaimsOf(record::Level level) {
  std::vector<std::string> claims = {"seal",  "schema",    "knobs",    "placement", "slots",
                                     "ranks", "ownership", "replicas", "bounds",    "collectives"};
  if (level >= record::Level::kRows) claims.emplace_back("router");
  if (level >= record::Level::kFull) claims.emplace_back("execution");
  return claims;
}

Gate ParseRun(const Files& files, RecordedRun* run) {
  *run = {};
  Reader reader(files);
  run->run = reader.NeedJson("run.json");
  run->layout = reader.NeedJson("layout.json");
  if (reader.gate()) return reader.gate();
  if (Member(run->run, "schema") != "trivet.run.v1") return OtherForm("run.json");
  if (Member(run->layout, "schema") != "trivet.layout.v1") return OtherForm("layout.json");
  const Json& level = Member(run->run, "level");
  const std::optional<record::Level> parsed =
      level.is_string() ? record::ParseLevel(level.get<std::string>()) : std::nullopt;
  if (!parsed || parsed == record::Level::kOff) return OtherForm("run.json");
  run->level = *parsed;
  if (Gate gate = ReadTokenLayout(run->layout, run->run, &run->tokens)) return gate;
  if (Gate gate = ReadLayers(*run, "router", &run->moe_layers)) return gate;
  if (Gate gate = ReadLayers(*run, "delta_net", &run->delta_layers)) return gate;
  const Json& versions = Member(run->run, "placement");
  if (!versions.is_array()) return OtherForm("run.json");
  for (size_t i = 0; i < versions.size(); ++i)
    run->placements.push_back(reader.NeedJson(fmt::format("placement/{}.json", i)));
  if (Gate gate = ReadRanks(reader, files, run)) return gate;
  if (run->level >= record::Level::kRows) {
    reader.Take(
        "logits.bin", [](const std::string& bytes) { return DecodeLogits(bytes, "logits.bin"); }, &run->logits);
  }
  if (reader.gate()) return reader.gate();
  return CheckClaims(*run);
}

}  // namespace trivet::proof
