// SPDX-License-Identifier: Apache-2.0
#include "proof/gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>

#include "base/hash.h"
#include "base/str.h"

namespace trivet::proof {
namespace {

constexpr const char* kSchema = "trivet.gradient-collectives.v1";

// The first kMovesBits can move a bit.
constexpr std::array kFields = {"bucket",    "parameters", "ranks",           "kind",     "actual",
                                "order",     "payload",    "accumulate",      "round_at", "op",
                                "divide_at", "configured", "fallback_reason", "source",   "notes"};
constexpr size_t kMovesBits = 11;

// A field that has few values, and these.
struct FieldWords {
  const char* field;
  std::array<std::string_view, 3> words;  // empty: none
};
constexpr FieldWords kWords[] = {{"kind", {"all-reduce", "reduce-scatter", "none"}},
                                 {"op", {"sum", "mean"}},
                                 {"divide_at", {"before", "after", "none"}}};

Finding InBucket(size_t bucket, Verdict verdict, const std::string& text) {
  return Found(verdict, fmt::format("bucket {}: {}", bucket, text), {{"bucket", bucket}});
}

bool IsListOf(const Json& value, bool (*is_entry)(const Json&)) {
  return value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_entry);
}

bool IsName(const Json& value) { return value.is_string() && value != ""; }
bool IsRank(const Json& value) { return IsInt64(value) && value >= 0; }

Gate CheckStructure(const Json& file) {
  if (Member(file, "schema") != kSchema) {
    return Found(Verdict::kSchemaMismatch, fmt::format("\"schema\": expected \"{}\", found {}", kSchema,
                                                       DumpJson(Member(file, "schema")).substr(0, 60)));
  }
  const Json& buckets = Member(file, "buckets");
  if (!IsListOf(buckets, [](const Json& bucket) { return bucket.is_object(); })) {
    return Found(Verdict::kSchemaMismatch, "\"buckets\": expected a list of records, found another or none");
  }
  for (const auto& [key, value] : file.items()) {
    if (key == "schema" || key == "buckets") continue;
    return Found(Verdict::kSchemaMismatch,
                 fmt::format("expected \"schema\" and \"buckets\", found \"{}\" beside them", Quote(key)));
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const auto& [key, value] : buckets[i].items()) {
      if (std::find(kFields.begin(), kFields.end(), key) != kFields.end()) continue;
      return InBucket(i, Verdict::kSchemaMismatch, fmt::format("\"{}\" is no field of a record", Quote(key)));
    }
  }
  return std::nullopt;
}

Gate CheckWords(size_t index, const Json& bucket) {
  for (const FieldWords& one : kWords) {
    const auto found = bucket[one.field].get<std::string>();
    if (std::find(one.words.begin(), one.words.end(), found) != one.words.end()) continue;
    std::vector<std::string_view> words;
    std::copy_if(one.words.begin(), one.words.end(), std::back_inserter(words),
                 [](auto word) { return !word.empty(); });
    return InBucket(
        index, Verdict::kSchemaMismatch,
        fmt::format("\"{}\": expected one of {}, found \"{}\"", one.field, fmt::join(words, ", "), Quote(found)));
  }
  return std::nullopt;
}

// A field that is absent is not filled in: that would make unlike sums look alike.
Gate CheckComplete(size_t index, const Json& bucket) {
  for (const char* field : kFields) {
    if (Find(bucket, field) != nullptr) continue;
    return InBucket(index, Verdict::kMissingProvenance, fmt::format("\"{}\" is not recorded", field));
  }
  if (!IsName(bucket["source"])) {
    return InBucket(index, Verdict::kMissingProvenance, "nobody says how it was observed");
  }
  if ((bucket["kind"] == "none" || bucket["actual"] == "none") && bucket["ranks"].size() > 1) {
    return InBucket(index, Verdict::kMissingProvenance,
                    fmt::format("no sum is recorded, and {} ranks took part", bucket["ranks"].size()));
  }
  return std::nullopt;
}

Gate CheckValues(size_t index, const Json& bucket, std::set<std::string>* parameters) {
  if (bucket["bucket"] != index) {
    return InBucket(index, Verdict::kSchemaMismatch,
                    fmt::format("stands in the place of bucket {}", DumpJson(bucket["bucket"])));
  }
  if (!IsListOf(bucket["parameters"], IsName) || !IsListOf(bucket["ranks"], IsRank)) {
    return InBucket(index, Verdict::kSchemaMismatch,
                    fmt::format("expected lists of parameters and of ranks, found {} and {}",
                                DumpJson(bucket["parameters"]).substr(0, 60), DumpJson(bucket["ranks"]).substr(0, 60)));
  }
  std::set<int64_t> ranks;
  for (const Json& rank : bucket["ranks"]) {
    if (ranks.insert(rank.get<int64_t>()).second) continue;
    return InBucket(index, Verdict::kSchemaMismatch, fmt::format("rank {} takes part twice", DumpJson(rank)));
  }
  for (const Json& parameter : bucket["parameters"]) {
    if (parameters->insert(parameter.get<std::string>()).second) continue;
    return InBucket(index, Verdict::kSchemaMismatch,
                    fmt::format("{} is in another bucket as well", DumpJson(parameter)));
  }
  for (const char* field :
       {"kind", "actual", "order", "payload", "accumulate", "round_at", "op", "divide_at", "configured"}) {
    if (IsName(bucket[field])) continue;
    return InBucket(index, Verdict::kSchemaMismatch,
                    fmt::format("\"{}\": expected a text, found {}", field, DumpJson(bucket[field]).substr(0, 60)));
  }
  if (Gate gate = CheckWords(index, bucket)) return gate;
  const Json &reason = bucket["fallback_reason"], &notes = bucket["notes"];
  if ((!reason.is_null() && !reason.is_string()) || !notes.is_string()) {
    return InBucket(
        index, Verdict::kSchemaMismatch,
        fmt::format("expected a text or null as \"fallback_reason\" and a text as \"notes\", found {} and {}",
                    DumpJson(reason).substr(0, 60), DumpJson(notes).substr(0, 60)));
  }
  return std::nullopt;
}

Gate CheckFallback(size_t index, const Json& bucket) {
  if (bucket["configured"] == bucket["actual"] || IsName(bucket["fallback_reason"])) return std::nullopt;
  return InBucket(index, Verdict::kSilentFallback,
                  fmt::format("{} was configured, {} ran, and nobody says why", DumpJson(bucket["configured"]),
                              DumpJson(bucket["actual"])));
}

Json DeltaJson(const GradientDelta& delta) {
  return {{"bucket", delta.bucket}, {"field", delta.field}, {"a", delta.a}, {"b", delta.b}};
}

// The comparison of a file with the first one, as the report has it.
Gate CompareGradients(const std::vector<GradientDelta>& deltas, const CompareOptions& options, Json* entry) {
  (*entry)["differences"] = Json::array();
  for (const GradientDelta& delta : deltas) (*entry)["differences"].push_back(DeltaJson(delta));
  if (!options.same_reduction || deltas.empty()) return std::nullopt;
  const GradientDelta& first = deltas[0];
  return Found(Verdict::kReductionOrderMismatch,
               fmt::format("bucket {}: {} {} against {}", first.bucket, first.field, DumpJson(first.a).substr(0, 200),
                           DumpJson(first.b).substr(0, 200)),
               DeltaJson(first));
}

}  // namespace

std::vector<std::string> GradientFields() { return {kFields.begin(), kFields.end()}; }

Gate CheckGradients(const Json& file) {
  if (Gate gate = CheckStructure(file)) return gate;
  const Json& buckets = file["buckets"];
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (Gate gate = CheckComplete(i, buckets[i])) return gate;
  }
  std::set<std::string> parameters;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (Gate gate = CheckValues(i, buckets[i], &parameters)) return gate;
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (Gate gate = CheckFallback(i, buckets[i])) return gate;
  }
  return std::nullopt;
}

Digest GradientFingerprint(const Json& file) {
  Json moving = Json::array();
  for (const Json& bucket : Member(file, "buckets")) {
    for (size_t i = 0; i < kMovesBits; ++i) moving.push_back(Member(bucket, kFields[i]));
  }
  return Hash128(DumpJson(moving));
}

std::vector<GradientDelta> DescribeGradients(const Json& a, const Json& b) {
  const Json &of_a = Member(a, "buckets"), &of_b = Member(b, "buckets");
  std::vector<GradientDelta> deltas;
  for (size_t i = 0; i < std::max(of_a.size(), of_b.size()); ++i) {
    const auto bucket = static_cast<int64_t>(i);
    if (i >= of_a.size() || i >= of_b.size()) {
      deltas.push_back({bucket, "bucket", i < of_a.size() ? of_a[i] : Json(), i < of_b.size() ? of_b[i] : Json()});
      continue;
    }
    for (size_t f = 0; f < kMovesBits; ++f) {
      const Json &x = Member(of_a[i], kFields[f]), &y = Member(of_b[i], kFields[f]);
      if (x != y) deltas.push_back({bucket, kFields[f], x, y});
    }
  }
  return deltas;
}

Report VerifyGradients(const std::vector<NamedJson>& files, const CompareOptions& options) {
  Report report;
  report.json = {{"schema", "trivet.verify-gradients.v1"},
                 {"verdict", 0},
                 {"name", ""},
                 {"files", Json::array()},
                 {"comparisons", Json::array()}};
  const auto keep = [&](const std::string& name, const Gate& gate, const std::string& passed) {
    report.text += gate ? fmt::format("{}: {} ({}): {}\n", name, VerdictName(gate->verdict),
                                      static_cast<int>(gate->verdict), gate->message)
                        : passed;
    if (!gate || report.finding.verdict != Verdict::kPass) return;
    report.finding = *gate;
    report.json["finding"] = GateJson(gate);
    report.json["finding"]["file"] = name;
  };
  for (const NamedJson& file : files) {
    const Gate gate = CheckGradients(file.json);
    Json entry = GateJson(gate);
    entry["file"] = file.name;
    std::string passed;
    if (!gate) {
      const size_t buckets = Member(file.json, "buckets").size();
      entry.update({{"buckets", buckets}, {"fingerprint", Hex(GradientFingerprint(file.json))}});
      passed = fmt::format("{}: {} buckets of gradients, fingerprint {}: in order\n", file.name, buckets,
                           Hex(GradientFingerprint(file.json)));
    }
    report.json["files"].push_back(std::move(entry));
    keep(file.name, gate, passed);
  }
  for (size_t i = 1; i < files.size() && report.finding.verdict == Verdict::kPass; ++i) {
    const std::vector<GradientDelta> deltas = DescribeGradients(files[0].json, files[i].json);
    Json entry = {{"a", files[0].name}, {"b", files[i].name}};
    const Gate gate = CompareGradients(deltas, options, &entry);
    entry.update(GateJson(gate));
    report.json["comparisons"].push_back(std::move(entry));
    const std::string name = fmt::format("{} against {}", files[i].name, files[0].name);
    keep(name, gate, fmt::format("{}: sums differ in {} fields\n", name, deltas.size()));
  }
  report.json["verdict"] = static_cast<int>(report.finding.verdict);
  report.json["name"] = VerdictName(report.finding.verdict);
  return report;
}

}  // namespace trivet::proof
