// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "base/str.h"
#include "cli/commands.h"
#include "proof/report_html.h"
#include "proof/selftest.h"

namespace trivet::cli {
namespace {

struct VerifyFlags {
  std::vector<std::string> runs;
  std::string html;
  bool same_reduction = false;
  bool selftest = false;
};

Exit Execute(const VerifyFlags& flags) {
  if (flags.selftest) {
    const proof::SelftestResult result = proof::Selftest();
    std::puts(DumpJson(result.json, 1).c_str());
    std::fflush(stdout);
    std::fputs(result.text.c_str(), stderr);
    if (result.passed) return 0;
    return Status(MakeError(Code::kDiffers,
                            "verify: expected every case of the self-test as listed, found another; the "
                            "verifier is not to be trusted"));
  }
  std::vector<proof::NamedFiles> runs;
  for (const std::string& dir : flags.runs) {
    Result<proof::Files> files = proof::ReadRunDir(dir);
    if (!files.ok()) return Status(files.error());
    runs.push_back({dir, std::move(files).value()});
  }
  if (runs.empty()) {
    return Status(MakeError(Code::kUsage, "verify: expected the folder of a run, found none; record one with --proof"));
  }
  const proof::Report report = proof::Verify(runs, {flags.same_reduction});
  if (!flags.html.empty()) {
    const Result<std::string> path = WritablePath(flags.html);
    if (!path.ok()) return Status(path.error());
    if (const Status written = WriteTextFile(*path, proof::ReportHtml(report.json)); !written.ok()) return written;
  }
  std::puts(DumpJson(report.json, 1).c_str());
  std::fflush(stdout);
  std::fputs(report.text.c_str(), stderr);
  return static_cast<int>(report.finding.verdict);
}

}  // namespace

Run AddVerify(CLI::App* app) {
  auto flags = std::make_shared<VerifyFlags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option("RUN", flags->runs, "folders that --proof wrote; all are compared with the first one")->take_all();
  app->add_option("--html", flags->html, "also write the report as one HTML page");
  app->add_flag("--selftest", flags->selftest,
                "judge made-up runs with one defect each, runs that are in order, and runs with a byte changed");
  app->add_flag("--same-reduction", flags->same_reduction, "also require that all runs add in the same order");
  return [flags] { return Execute(*flags); };
}

}  // namespace trivet::cli
