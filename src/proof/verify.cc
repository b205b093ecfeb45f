// SPDX-License-Identifier: Apache-2.0
#include "proof/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace trivet::proof {
namespace {

// The gates of a single run that follow its form, by the names that a run claims them by.
struct GateRow {
  const char* claim;
  Gate (*check)(const RecordedRun& run);
};
constexpr std::array kGates = {GateRow{"knobs", CheckKnobs},         GateRow{"placement", CheckPlacements},
                               GateRow{"slots", CheckSlots},         GateRow{"ranks", CheckRankSet},
                               GateRow{"ownership", CheckOwnership}, GateRow{"replicas", CheckReplicas},
                               GateRow{"bounds", CheckBounds},       GateRow{"router", CheckRouter},
                               GateRow{"execution", CheckExecution}, GateRow{"collectives", CheckCollectives}};

Json CountsJson(const Counts& counts) {
  return {{"ranks", counts.ranks},
          {"decisions", counts.decisions},
          {"decision_copies", counts.decision_copies},
          {"boundary_digests", counts.bounds},
          {"logits_rows", counts.logits_rows},
          {"logits_bytes", counts.logits_bytes},
          {"expert_slots", counts.slots},
          {"dispatches", counts.dispatches},
          {"executions", counts.executions},
          {"collective_records", counts.collectives}};
}

// Decisions that did not come from the router.
std::string ForcedText(const RecordedRun& run) {
  const Json& routes = Member(run.run, "routes");
  if (!routes.is_object()) return "";
  return fmt::format(", {} decisions forced by a file and {} of them other than the router's own",
                     DumpJson(Member(routes, "forced")), DumpJson(Member(routes, "other")));
}

std::string CountsText(const std::string& name, const RecordedRun& run, const Counts& counts) {
  std::string text =
      fmt::format("{}: level {}, {} ranks, {} decisions in {} copies, {} boundary digests, {} rows of logits", name,
                  record::LevelName(run.level), counts.ranks, counts.decisions, counts.decision_copies, counts.bounds,
                  counts.logits_rows);
  text += ForcedText(run);
  if (counts.executions > 0) text += fmt::format(", {} executions", counts.executions);
  return text + fmt::format(", {} expert slots, {} records of sums: in order\n", counts.slots, counts.collectives);
}

std::string ComparisonText(const std::string& a, const std::string& b, const Comparison& found) {
  return fmt::format(
      "{} against {}{}: {} decisions, {} boundary digests and {} logits in {} rows ({} bytes) are equal; "
      "sums differ in {} fields\n",
      b, a, found.dimensions.empty() ? "" : fmt::format(" (other {})", fmt::join(found.dimensions, ", ")),
      found.decisions, found.bounds, found.logits_bytes / 4, found.logits_rows, found.logits_bytes, found.reductions);
}

std::string FindingText(const std::string& name, const Finding& finding) {
  return fmt::format("{}: {} ({}): {}\n", name, VerdictName(finding.verdict), static_cast<int>(finding.verdict),
                     finding.message);
}

}  // namespace

Json GateJson(const Gate& gate) {
  if (!gate) return {{"verdict", 0}, {"name", VerdictName(Verdict::kPass)}};
  return {{"verdict", static_cast<int>(gate->verdict)},
          {"name", VerdictName(gate->verdict)},
          {"message", gate->message},
          {"where", gate->where}};
}

Counts CountsOf(const RecordedRun& run) {
  Counts counts;
  counts.ranks = static_cast<int64_t>(run.ranks.size());
  for (const RankRun& rank : run.ranks) {
    counts.decision_copies += static_cast<int64_t>(rank.decisions.size());
    counts.dispatches += static_cast<int64_t>(rank.dispatches.size());
    counts.executions += static_cast<int64_t>(rank.executions.size());
    counts.collectives += static_cast<int64_t>(rank.collectives.size());
    counts.slots += static_cast<int64_t>(Member(rank.weights, "experts").size());
    for (const record::BoundRecord& bound : rank.bounds) {
      const bool logits = bound.site == record::Site::kLogits;
      counts.bounds += logits ? 0 : 1;
      counts.logits_rows += logits ? 1 : 0;
      counts.logits_bytes += logits ? int64_t{bound.values} * static_cast<int64_t>(sizeof(float)) : 0;
    }
  }
  for (const RequestFacts& request : run.tokens.requests) {
    counts.decisions += request.computed * static_cast<int64_t>(run.moe_layers.size());
  }
  return counts;
}

Gate CheckRun(const Files& files, RecordedRun* run) {
  if (Gate gate = CheckSeal(files)) return gate;
  if (Gate gate = ParseRun(files, run)) return gate;
  for (const GateRow& row : kGates) {
    if (Gate gate = row.check(*run)) return gate;
  }
  return std::nullopt;
}

Report Verify(const std::vector<NamedFiles>& runs, const CompareOptions& options) {
  Report report;
  report.json = {{"schema", "trivet.verify.v1"},
                 {"verdict", 0},
                 {"name", ""},
                 {"runs", Json::array()},
                 {"comparisons", Json::array()}};
  const auto keep_first = [&](const std::string& name, const Gate& gate) {
    if (!gate) return;
    report.text += FindingText(name, *gate);
    if (report.finding.verdict != Verdict::kPass) return;
    report.finding = *gate;
    report.json["finding"] = GateJson(gate);
    report.json["finding"]["run"] = name;
  };
  std::vector<RecordedRun> read(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    const Gate gate = CheckRun(runs[i].files, &read[i]);
    Json entry = GateJson(gate);
    entry["run"] = runs[i].name;
    if (!gate) {
      const Counts counts = CountsOf(read[i]);
      entry["counts"] = CountsJson(counts);
      entry["gates"] = ClaimsOf(read[i].level);
      if (const Json* routes = Find(read[i].run, "routes")) entry["routes"] = *routes;
      report.text += CountsText(runs[i].name, read[i], counts);
    }
    report.json["runs"].push_back(std::move(entry));
    keep_first(runs[i].name, gate);
  }
  // A run that does not stand by itself proves nothing about another.
  for (size_t i = 1; i < runs.size() && report.finding.verdict == Verdict::kPass; ++i) {
    const Comparison found = Compare(read[0], read[i], options);
    Json entry = GateJson(found.gate);
    entry.update({{"a", runs[0].name},
                  {"b", runs[i].name},
                  {"dimensions", found.dimensions},
                  {"decisions", found.decisions},
                  {"boundary_digests", found.bounds},
                  {"logits_rows", found.logits_rows},
                  {"logits_bytes", found.logits_bytes},
                  {"reduction_fields_that_differ", found.reductions}});
    if (const std::string grade = found.gate ? Grade(read[0], read[i]) : "bits"; !grade.empty()) entry["grade"] = grade;
    if (!found.gate) report.text += ComparisonText(runs[0].name, runs[i].name, found);
    report.json["comparisons"].push_back(std::move(entry));
    keep_first(fmt::format("{} against {}", runs[i].name, runs[0].name), found.gate);
  }
  report.json["verdict"] = static_cast<int>(report.finding.verdict);
  report.json["name"] = VerdictName(report.finding.verdict);
  return report;
}

}  // namespace trivet::proof
