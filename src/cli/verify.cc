// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "engine/matrix.h"
#include "engine/prompts.h"
#include "proof/gradients.h"
#include "proof/report_html.h"
#include "proof/selftest.h"

namespace trivet::cli {
namespace {

struct VerifyFlags {
  std::vector<std::string> runs;
  std::string html, matrix, out;
  bool same_reduction = false;
  bool selftest = false;
};

// The folder for the runs of a plan: the user's, or one that goes with this object.
class RunsFolder {
 public:
  static Result<RunsFolder> Make(const std::string& out) {
    std::error_code error;
    if (!out.empty()) {
      if (std::filesystem::create_directory(out, error)) return RunsFolder(out, "");
      return MakeError(Code::kUsage, fmt::format("{}: expected a path for a new folder in one that exists, found {}; "
                                                 "choose another",
                                                 Quote(out), error ? error.message() : "one that is there already"));
    }
    std::string made = std::filesystem::temp_directory_path(error) / "trivet-matrix-XXXXXX";
    if (error || ::mkdtemp(made.data()) == nullptr) {
      return MakeError(Code::kIo, "verify: expected to make a folder for temporary files, found none; give --out DIR");
    }
    return RunsFolder(made, made);
  }
  ~RunsFolder() {
    std::error_code ignored;
    if (!remove_.empty()) std::filesystem::remove_all(remove_, ignored);
  }
  RunsFolder(RunsFolder&& other) noexcept : path_(std::move(other.path_)), remove_(std::exchange(other.remove_, "")) {}
  RunsFolder(const RunsFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  RunsFolder(std::string path, std::string remove) : path_(std::move(path)), remove_(std::move(remove)) {}

  std::string path_, remove_;
};

// What the plan asks for, ready to be carried out: its model, and the tokens and folder in `options`.
Result<engine::OpenedModel> Prepare(const proof::MatrixPlan& plan, engine::MatrixOptions* options) {
  TRY(engine::CheckSettings(plan, options->plan_dir));
  TRY_ASSIGN(const std::string dir, ModelDir(plan.model));
  TRY_ASSIGN(engine::OpenedModel model, engine::OpenModel(plan.model, dir));
  options->tokens = plan.tokens;
  if (plan.texts.empty()) return model;
  TRY_ASSIGN(const engine::Prompts prompts, engine::Prompts::Open(dir, model.checkpoint));
  for (const std::string& text : plan.texts) {
    TRY_ASSIGN(std::vector<TokenId> ids, prompts.EncodeText(text));
    options->tokens.push_back(std::move(ids));
  }
  return model;
}

// Carries out a plan; lines go to standard error as cases end.
Result<proof::Report> Matrix(const VerifyFlags& flags) {
  TRY_ASSIGN(const Json json, ReadJsonFile(flags.matrix));
  TRY_ASSIGN(const proof::MatrixPlan plan, proof::ParseMatrixPlan(json, flags.matrix));
  engine::MatrixOptions options;
  options.plan_dir = std::filesystem::path(flags.matrix).parent_path().string();
  const Result<engine::OpenedModel> model = Prepare(plan, &options);
  if (!model.ok()) {
    // What would be wrong usage on the command line is a malformed file here.
    const Code code = model.error().code == Code::kUsage ? Code::kInvalid : model.error().code;
    return MakeError(code, flags.matrix + ": " + model.error().message);
  }
  TRY_ASSIGN(const RunsFolder folder, RunsFolder::Make(flags.out));
  options.dir = folder.path();
  std::optional<FolderWatch> watch;  // runs that the user asked for stay as far as they came
  if (flags.out.empty()) watch.emplace(folder.path(), true);
  options.report = [](const std::string& line) { std::fputs(line.c_str(), stderr); };
  return engine::RunMatrix(*model, plan, options);
}

Exit Selftest() {
  const proof::SelftestResult result = proof::Selftest();
  std::puts(DumpJson(result.json, 1).c_str());
  std::fflush(stdout);
  std::fputs(result.text.c_str(), stderr);
  if (result.passed) return 0;
  return Status(MakeError(Code::kDiffers,
                          "verify: expected every case of the self-test as listed, found another; the "
                          "verifier is not to be trusted"));
}

// Files of trainers instead of folders of runs.
Result<proof::Report> Gradients(const VerifyFlags& flags) {
  if (!flags.html.empty()) {
    return MakeError(Code::kUsage, "verify: expected no --html beside files of gradient sums, found it; leave it out");
  }
  std::vector<proof::NamedJson> files;
  for (const std::string& path : flags.runs) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
      return MakeError(Code::kUsage, fmt::format("{}: expected a file of gradient sums, as the others are, found a "
                                                 "folder; verify runs by themselves",
                                                 Quote(path)));
    }
    TRY_ASSIGN(Json json, ReadJsonFile(path));
    files.push_back({path, std::move(json)});
  }
  return proof::VerifyGradients(files, {flags.same_reduction});
}

Result<proof::Report> Runs(const VerifyFlags& flags) {
  std::error_code ignored;
  const auto is_file = [&](const std::string& path) { return std::filesystem::is_regular_file(path, ignored); };
  if (std::any_of(flags.runs.begin(), flags.runs.end(), is_file)) return Gradients(flags);
  std::vector<proof::NamedFiles> runs;
  for (const std::string& dir : flags.runs) {
    TRY_ASSIGN(proof::Files files, proof::ReadRunDir(dir));
    runs.push_back({dir, std::move(files)});
  }
  if (runs.empty()) {
    return MakeError(Code::kUsage, "verify: expected the folder of a run, found none; record one with --proof");
  }
  return proof::Verify(runs, {flags.same_reduction});
}

Exit Execute(const VerifyFlags& flags) {
  if (flags.selftest) return Selftest();
  const bool matrix = !flags.matrix.empty();
  if (matrix && (!flags.runs.empty() || !flags.html.empty() || flags.same_reduction)) {
    return Status(MakeError(Code::kUsage,
                            "verify: expected --matrix without RUN, --html and --same-reduction, found "
                            "one of them; leave it out"));
  }
  const Result<proof::Report> report = matrix ? Matrix(flags) : Runs(flags);
  if (!report.ok()) return Status(report.error());
  if (!flags.html.empty()) {
    const Result<std::string> path = WritablePath(flags.html);
    if (!path.ok()) return Status(path.error());
    const FileWatch watch(*path);
    if (const Status written = WriteTextFile(*path, proof::ReportHtml(report->json)); !written.ok()) return written;
  }
  std::puts(DumpJson(report->json, 1).c_str());
  std::fflush(stdout);
  if (!matrix) std::fputs(report->text.c_str(), stderr);
  return static_cast<int>(report->finding.verdict);
}

}  // namespace

Run AddVerify(CLI::App* app) {
  auto flags = std::make_shared<VerifyFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option(
         "RUN", flags->runs,
         "folders that --proof wrote, or files in which trainers say how they summed gradients; all are compared "
         "with the first one")
      ->take_all();
  app->add_option("--html", flags->html, "also write the report as one HTML page");
  app->add_flag("--selftest", flags->selftest,
                "judge made-up runs with one defect each, runs that are in order, and runs with a byte changed");
  RefuseEmpty(app->add_option("--matrix", flags->matrix,
                              "JSON file: a layout and cases that change one setting of it each (docs/proof.md); "
                              "computes all, and verifies them against the first"));
  RefuseEmpty(app->add_option("--out", flags->out, "with --matrix: new folder that keeps the recorded runs")
                  ->needs("--matrix"));
  app->get_option("--selftest")->excludes("--matrix");
  app->add_flag("--same-reduction", flags->same_reduction, "also require that all runs add in the same order");
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
