// SPDX-License-Identifier: Apache-2.0
#include "engine/matrix.h"

#include <fmt/format.h>

#include "engine/knobs.h"
#include "engine/scoring.h"
#include "proof/run_files.h"

namespace trivet::engine {
namespace {

std::vector<AskedKnob> AskedBy(const proof::MatrixCase& one, const std::string& plan_dir) {
  std::vector<AskedKnob> asked;
  for (const auto& [path, value] : one.settings) asked.push_back({path, value, plan_dir});
  return asked;
}

// Computes the tokens and leaves a sealed run.
Status Record(Engine* engine, const std::vector<std::vector<TokenId>>& tokens) {
  TRY(Score(engine, {tokens, false, false}));
  return engine->SealProof();
}

// One case: its engine lives as long as this function.
class CaseRun {
 public:
  CaseRun(const proof::MatrixCase& one, const MatrixOptions& options, std::string dir)
      : case_(one), options_(options), asked_(AskedBy(one, options.plan_dir)), dir_(std::move(dir)) {}

  Status Run(const OpenedModel& model, const proof::MatrixPlan& plan, proof::MatrixReport* report) {
    const Result<std::unique_ptr<Engine>> engine = Start(model, plan.level);
    if (!engine.ok()) return Fail(engine.error(), report);
    const std::vector<proof::Application> applied = Apply(asked_, (*engine)->Knobs());
    if (const proof::Gate gate = proof::RequireExecutable(applied, plan.strict)) {
      report->Refuse(case_, applied, *gate);
      return {};
    }
    if (const Status ran = Record(engine->get(), options_.tokens); !ran.ok()) return Fail(ran.error(), report);
    TRY_ASSIGN(proof::Files files, proof::ReadRunDir(dir_));
    report->Add(case_, applied, {dir_, std::move(files)});
    return {};
  }

 private:
  Result<std::unique_ptr<Engine>> Start(const OpenedModel& model, record::Level level) const {
    EngineOptions options;
    for (const AskedKnob& knob : asked_) TRY(SetKnob(knob, &options));
    options.proof.level = level;
    options.proof.dir = dir_;
    options.proof.command = "verify --matrix: " + case_.name;
    return Engine::Start(model, options, {});
  }

  // In a case the setting that it changes is to blame; of a base's settings it may be any, or all of them together.
  Status Fail(const Error& error, proof::MatrixReport* report) const {
    const std::vector<proof::Application> applied = NotApplied(asked_, case_.varied, error);
    if (case_.varied.empty()) {
      report->Refuse(case_, applied, proof::Found(proof::Verdict::kKnobNotApplied, error.message));
    } else {
      report->Refuse(case_, applied, *proof::RequireExecutable(applied, true));
    }
    return {};
  }

  const proof::MatrixCase& case_;
  const MatrixOptions& options_;
  const std::vector<AskedKnob> asked_;
  const std::string dir_;
};

}  // namespace

Status CheckSettings(const proof::MatrixPlan& plan, const std::string& plan_dir) {
  for (const proof::MatrixCase& one : plan.cases) {
    for (const AskedKnob& knob : AskedBy(one, plan_dir)) {
      EngineOptions options;
      const Status set = SetKnob(knob, &options);
      if (!set.ok() && set.error().code != Code::kUnsupported) return set;
    }
  }
  return {};
}

Result<proof::Report> RunMatrix(const OpenedModel& model, const proof::MatrixPlan& plan, const MatrixOptions& options) {
  proof::MatrixReport report;
  for (size_t i = 0; i < plan.cases.size(); ++i) {
    CaseRun run(plan.cases[i], options, fmt::format("{}/{:03}", options.dir, i));
    TRY(run.Run(model, plan, &report));
    if (options.report) options.report(report.line());
    if (!report.has_base()) break;
  }
  return report.Finish();
}

}  // namespace trivet::engine
