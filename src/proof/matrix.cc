// SPDX-License-Identifier: Apache-2.0
#include "proof/matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/str.h"

namespace trivet::proof {
namespace {

constexpr const char* kSchema = "trivet.matrix.v1";
constexpr const char* kKeys[] = {"schema", "model", "level", "strict", "tokens", "texts", "base", "vary"};

Error Wrong(const std::string& what, const std::string& key, const std::string& expected, const Json& found) {
  return MakeError(Code::kInvalid, fmt::format("{}: \"{}\": expected {}, found {}; see docs/proof.md", what, key,
                                               expected, DumpJson(found).substr(0, 60)));
}

Status CheckKeys(const Json& plan, const std::string& what) {
  if (!plan.is_object()) {
    return MakeError(Code::kInvalid, fmt::format("{}: expected a plan of layouts, found {}; see docs/proof.md", what,
                                                 plan.type_name()));
  }
  for (const auto& [key, value] : plan.items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys)) continue;
    return MakeError(Code::kInvalid, fmt::format("{}: expected keys {}, found \"{}\"; correct or remove it", what,
                                                 fmt::join(kKeys, ", "), Quote(key)));
  }
  const Json& schema = Member(plan, "schema");
  if (schema == kSchema) return {};
  return MakeError(Code::kUnsupported, fmt::format("{}: \"schema\": expected \"{}\", found {}; write it anew", what,
                                                   kSchema, DumpJson(schema).substr(0, 60)));
}

Result<std::vector<TokenId>> TokensOf(const Json& list, const std::string& what) {
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<TokenId>::max())
      return Wrong(what, "tokens", "lists of token ids", id);
    ids.push_back(id.get<TokenId>());
  }
  if (!list.is_array() || ids.empty()) return Wrong(what, "tokens", "lists of token ids, none empty", list);
  return ids;
}

Status ReadWorkOf(const Json& plan, const std::string& what, MatrixPlan* out) {
  const Json &tokens = Member(plan, "tokens"), &texts = Member(plan, "texts");
  if (tokens.is_null() == texts.is_null()) {
    return Wrong(what, "tokens", "either this or \"texts\"", tokens.is_null() ? "neither" : "both");
  }
  const Json& work = tokens.is_null() ? texts : tokens;
  if (!work.is_array() || work.empty()) {
    return Wrong(what, tokens.is_null() ? "texts" : "tokens", "a list of at least one", work);
  }
  for (const Json& one : work) {
    if (tokens.is_null()) {
      if (!one.is_string() || one == "") return Wrong(what, "texts", "texts that are not empty", one);
      out->texts.push_back(one.get<std::string>());
      continue;
    }
    TRY_ASSIGN(std::vector<TokenId> ids, TokensOf(one, what));
    out->tokens.push_back(std::move(ids));
  }
  return {};
}

// A value as names of cases have it.
std::string ValueText(const Json& value) { return value.is_string() ? value.get<std::string>() : DumpJson(value); }

// The base with one of its settings changed.
Result<MatrixCase> Varied(const MatrixCase& base, const std::string& path, const Json& value, const std::string& what) {
  MatrixCase one{fmt::format("{}={}", path, ValueText(value)), base.settings, path};
  const auto setting = std::find_if(one.settings.begin(), one.settings.end(),
                                    [&](const auto& candidate) { return candidate.first == path; });
  if (setting == one.settings.end()) {  // which the base leaves to the engine
    one.settings.emplace_back(path, value);
    return one;
  }
  if (setting->second == value) return Wrong(what, path, "another value than that of \"base\"", value);
  setting->second = value;
  return one;
}

Status ReadCases(const Json& plan, const std::string& what, MatrixPlan* out) {
  const Json &settings = Member(plan, "base"), &vary = Member(plan, "vary");
  if (!settings.is_object()) return Wrong(what, "base", "an object of settings", settings);
  if (!vary.is_object() || vary.empty()) return Wrong(what, "vary", "at least one setting with a list of values", vary);
  MatrixCase base{"base", {}, ""};
  for (const auto& [path, value] : settings.items()) base.settings.emplace_back(path, value);
  out->cases.push_back(base);
  for (const auto& [path, values] : vary.items()) {
    if (!values.is_array() || values.empty()) return Wrong(what, path, "a list of values", values);
    for (auto value = values.begin(); value != values.end(); ++value) {
      if (std::find(values.begin(), value, *value) != value) return Wrong(what, path, "every value once", *value);
      TRY_ASSIGN(MatrixCase one, Varied(base, path, *value, what));
      out->cases.push_back(std::move(one));
    }
  }
  if (out->cases.size() <= kMaxMatrixCases) return {};
  return MakeError(Code::kCapacity, fmt::format("{}: expected at most {} cases, found {}; leave some out", what,
                                                kMaxMatrixCases, out->cases.size()));
}

// What all runs of a case have in common with a passed one.
Json CountsOfCase(const Comparison& found) {
  return {{"dimensions", found.dimensions},     {"decisions", found.decisions},
          {"boundary_digests", found.bounds},   {"logits_rows", found.logits_rows},
          {"logits_bytes", found.logits_bytes}, {"reduction_fields_that_differ", found.reductions}};
}

}  // namespace

Result<MatrixPlan> ParseMatrixPlan(const Json& plan, const std::string& what) {
  TRY(CheckKeys(plan, what));
  MatrixPlan out;
  TRY_ASSIGN(out.model, GetString(plan, "model", "", what));
  if (out.model.empty()) return Wrong(what, "model", "a model as on the command line", Member(plan, "model"));
  TRY_ASSIGN(const std::string level, GetString(plan, "level", "digest", what));
  const std::optional<record::Level> parsed = record::ParseLevel(level);
  if (!parsed || *parsed == record::Level::kOff) return Wrong(what, "level", "digest, rows or full", Json(level));
  out.level = *parsed;
  TRY_ASSIGN(out.strict, GetBool(plan, "strict", true, what));
  TRY(ReadWorkOf(plan, what, &out));
  TRY(ReadCases(plan, what, &out));
  return out;
}

void MatrixReport::Keep(const MatrixCase& one, const std::vector<Application>& applications, Json entry,
                        const Gate& gate) {
  entry["case"] = one.name;
  entry["varied"] = one.varied.empty() ? Json() : Json(one.varied);
  entry["materialization"] = MaterializationName(Aggregate(applications));
  entry["knobs"] = Json::array();
  for (const Application& application : applications) {
    entry["knobs"].push_back(KnobJson(application.knob, application.status));
  }
  entry.update(GateJson(gate));
  if (gate) {
    line_ = fmt::format("{}: {} ({}): {}\n", one.name, VerdictName(gate->verdict), static_cast<int>(gate->verdict),
                        gate->message);
    if (finding_.verdict == Verdict::kPass) {
      finding_ = *gate;
      first_ = GateJson(gate);
      first_["case"] = one.name;
    }
  }
  cases_.push_back(std::move(entry));
  text_ += line_;
}

void MatrixReport::Refuse(const MatrixCase& one, const std::vector<Application>& applications, const Finding& finding) {
  Keep(one, applications, Json::object(), finding);
}

void MatrixReport::Add(const MatrixCase& one, const std::vector<Application>& applications, const NamedFiles& run) {
  RecordedRun read;
  Json entry = {{"run", run.name}};
  Gate gate = CheckRun(run.files, &read);
  if (!gate) {
    const Counts counts = CountsOf(read);
    entry["decision_copies"] = counts.decision_copies;
    line_ = fmt::format("{}: PASS (0): {} decisions in {} copies, {} boundary digests, {} rows of logits ({} bytes)\n",
                        one.name, counts.decisions, counts.decision_copies, counts.bounds, counts.logits_rows,
                        counts.logits_bytes);
  }
  if (!gate && has_base_) {
    const Comparison found = Compare(base_, read, {});
    gate = found.gate;
    entry.update(CountsOfCase(found));
    if (const std::string grade = gate ? Grade(base_, read) : "bits"; !grade.empty()) entry["grade"] = grade;
    line_ = fmt::format(
        "{}: PASS (0): {} decisions, {} boundary digests and {} logits in {} rows ({} bytes) are equal to the base's\n",
        one.name, found.decisions, found.bounds, found.logits_bytes / static_cast<int64_t>(sizeof(float)),
        found.logits_rows, found.logits_bytes);
  } else if (!gate) {
    base_ = std::move(read);
    has_base_ = true;
  }
  Keep(one, applications, std::move(entry), gate);
}

Report MatrixReport::Finish() const {
  Report report;
  report.finding = finding_;
  report.text = text_;
  report.json = {{"schema", "trivet.matrix-report.v1"},
                 {"verdict", static_cast<int>(finding_.verdict)},
                 {"name", VerdictName(finding_.verdict)},
                 {"cases", cases_}};
  if (!first_.is_null()) report.json["finding"] = first_;
  return report;
}

}  // namespace trivet::proof
