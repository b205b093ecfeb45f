// SPDX-License-Identifier: Apache-2.0
// Runs that are recorded, verified, replayed and forced, and what is said about sums.
#include <csignal>
#include <filesystem>

#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/support/paths.h"

namespace trivet::cli {
namespace {

using testing::HasSubstr;

// The exit status of verify is the verdict; its report goes to standard output, what people read to standard error.
TEST_F(Program, RunsAreRecordedVerifiedReplayedAndExported) {
  const auto path = [&](const char* name) { return dir_.Path(name); };
  const std::string one = path("one"), three = path("three"), again = path("again"), bad = path("bad");
  const std::string prompt = " -q --prompt 'Count from 48 to 50.' --max-tokens 4 ";
  ASSERT_EQ(Run("generate demo" + prompt + "--proof digest --out " + one).status, 0);
  ASSERT_EQ(Run("generate demo --ranks 3 --launch processes" + prompt + "--proof rows --out " + three).status, 0);
  const Outcome equal = Run("verify " + one + " " + three);
  EXPECT_EQ(equal.status, 0) << equal.err;
  EXPECT_THAT(equal.err, HasSubstr("are equal"));
  const Result<Json> report = ParseJson(equal.out, "report");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(Member(*report, "name"), "PASS");
  EXPECT_EQ(Member(Member(*report, "comparisons")[0], "grade"), "bits");

  Refused("replay -q --from " + three + " --kv-cache-dtype fp8 --out " + again, 2, {"--kv-cache-dtype", "as"});
  EXPECT_EQ(Run("replay -q --from " + three + " --ranks 2 --out " + again).status, 0);
  EXPECT_EQ(Run("verify " + one + " " + three + " " + again).status, 0);
  // A rank without an expert chooses like the others all the same.
  const std::string many = path("many");
  ASSERT_EQ(Run("generate demo --ranks 11 --ep 11" + prompt + "--proof digest --out " + many).status, 0);
  EXPECT_EQ(Run("verify " + one + " " + many).status, 0);
  EXPECT_EQ(Run("routes export " + three + " " + path("routes.safetensors")).status, 0);
  Refused("routes export " + one + " " + path("r"), 5, {"--proof rows"});
  Refused("routes export " + three + " " + three + "/r", 2, {"sealed"});

  ASSERT_EQ(
      Run("generate demo --ranks 3 --fault partial-bf16:rank=1:site=4" + prompt + "--proof rows --out " + bad).status,
      0);
  const Outcome differs = Run("verify " + one + " " + bad);
  EXPECT_EQ(differs.status, 77);
  EXPECT_THAT(differs.err, HasSubstr("layer 2 resid1, request 0, position 0"));
  EXPECT_THAT(differs.out, HasSubstr("bf16, before the sum"));  // in the record of the sum before it
  EXPECT_THAT(differs.err, HasSubstr("rounded: bf16, before the sum"));

  Refused("generate demo" + prompt + "--proof digest --out " + one, 2, {"new run"});
  Refused("generate demo" + prompt + "--proof digest", 2, {"--proof-out"});
  Refused("generate demo" + prompt + "--proof all --out x", 2, {"digest, rows or full"});
  for (const std::string place :
       {"--request 1", "--request -1", "--position -1", "--position 4294967296", "--layer 99"}) {
    Refused("layout owners " + one + " " + place, 2, {place.substr(0, place.find(' '))});
  }
  Refused("tune --ranks 99 --out " + path("tuning.json"), 2, {"--ranks"});
  EXPECT_FALSE(std::filesystem::exists(path("tuning.json")));
  Refused("verify " + path("none"), 3, {"folder of a run"});
  std::filesystem::remove(one + "/COMPLETE");
  EXPECT_EQ(Run("verify " + one).status, 13);
}

TEST_F(Program, APlanOfLayoutsIsRunAndVerified) {
  const std::string plan = SourceRoot() + "/docs/examples/matrix.json";
  const Outcome outcome = Run("verify --matrix " + plan + " --out " + dir_.Path("runs"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const Result<Json> report = ParseJson(outcome.out, "report");
  ASSERT_TRUE(report.ok());
  const Json& cases = Member(*report, "cases");
  ASSERT_EQ(cases.size(), 19U);
  EXPECT_EQ(Split(outcome.err, '\n').size(), cases.size() + 1) << "a line for every case";
  for (const Json& one : cases) {
    EXPECT_EQ(Member(one, "materialization"), "applied") << DumpJson(one);
    EXPECT_EQ(Member(one, "verdict"), 0);
    if (Member(one, "case") == "base") continue;
    EXPECT_GT(Member(one, "decisions"), 0);
    EXPECT_GT(Member(one, "logits_bytes"), 0);
  }
  // The runs that stay are runs like any other.
  EXPECT_EQ(Run("verify " + dir_.Path("runs/000") + " " + dir_.Path("runs/004")).status, 0);

  const auto plan_of = [&](const std::string& vary) {
    return Write("plan", R"({"schema": "trivet.matrix.v1", "model": "demo", "tokens": [[5, 6, 7]], )"
                         R"("base": {"parallel.tp": 2}, "vary": )" +
                             vary + "}");
  };
  const Outcome other =
      Run("verify --matrix " + plan_of(R"({"numerics.contract": ["fast"], "launch": ["processes"]})"));
  EXPECT_EQ(other.status, 10);
  EXPECT_THAT(other.err, HasSubstr("numerics.contract=fast: IDENTITY_DRIFT (10)"));
  EXPECT_THAT(other.err, HasSubstr("launch=processes: PASS (0)"));
  EXPECT_EQ(Run("verify --matrix " + plan_of(R"({"kv.tokens": [1000]})")).status, 82);
  const std::string file = dir_.Path("plan");
  Refused("verify --matrix " + plan_of(R"({"parallel.luck": [1]})"), 4, {file, "parallel.luck", "parallel.tp"});
  Refused("verify --matrix " + plan_of(R"({"launch": ["fibres"]})"), 4, {file, "fibres"});
  Refused("verify --matrix " + plan_of(R"({"parallel.tp": [1, 1]})"), 4, {file, "parallel.tp", "once"});
  Refused("verify --matrix " + Write("plan", R"({"schema": "trivet.matrix.v1", "model": "no-model", "tokens": [[5]], )"
                                             R"("base": {"parallel.tp": 2}, "vary": {"parallel.tp": [1]}})"),
          3, {file, "no-model"});
  Refused("verify --matrix " + plan_of("{}") + " --html x", 2, {"--html"});
  Refused("verify --matrix " + Write("plan", R"({"schema": "trivet.matrix.v1", "layouts": []})"), 4, {"layouts"});
  Refused("verify --matrix " + dir_.Path("none"), 3, {"none"});
  Refused("verify --out " + dir_.Path("out") + " " + dir_.Path("none"), 2, {"--out", "--matrix"});
  Refused("verify --selftest --matrix " + dir_.Path("none"), 2, {"--selftest", "--matrix"});
}

TEST_F(Program, AnInterruptedPlanLeavesNothing) {
  const std::string plan =
      Write("plan", R"({"schema": "trivet.matrix.v1", "model": "demo", "tokens": [[5, 6, 7]], )"
                    R"("base": {"parallel.tp": 2}, "vary": {"parallel.tp": [1, 3, 4, 5, 6, 7, 8]}})");
  const std::string folder = dir_.Path("tmp");
  std::filesystem::create_directory(folder);
  // Ended as soon as the folder of a run is there.
  const std::string script =
      "TMPDIR=" + folder + " " + ProgramPath() + " verify --matrix " + plan + " >/dev/null 2>&1 & pid=$!; while ! ls " +
      folder + "/*/* >/dev/null 2>&1 && kill -0 $pid; do sleep 0.01; done; kill -TERM $pid; wait $pid; exit $?";
  const int status = std::system(("bash -c '" + script + "'").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

// Stopped as soon as a part of the output is there, so that the signal finds it in the midst of writing.
TEST_F(Program, AnInterruptedScoreLeavesNoPartOfAFile) {
  std::string list;
  for (int i = 0; i < 1500; ++i) list += (i == 0 ? "" : ",") + std::to_string(i * 7 % 4000);
  const std::string tokens = Write("tokens.json", "[[" + list + "],[" + list + "]]");
  const std::string folder = dir_.Path("logits");
  std::filesystem::create_directory(folder);
  const std::string out = folder + "/out.safetensors";
  for (const auto& [name, number] : {std::pair<std::string, int>{"TERM", SIGTERM}, {"INT", SIGINT}}) {
    // On a busy machine the file may be finished before anybody has looked, or before the signal is: then once more.
    // The shell may wait for less than the end, and say that the process was stopped.
    const std::string part = out + ".$pid.tmp";
    const std::string script =
        "set -m; ended() { s=147; while [ $s = 147 ]; do wait $pid; s=$?; done; }; for try in $(seq 20); do " +
        ProgramPath() + " score demo -q --ranks 2 --tokens " + tokens + " --out " + out + " & pid=$!; while ! [ -e " +
        part + " ] && kill -0 $pid; do :; done; kill -STOP $pid; if [ -e " + part + " ]; then kill -" + name +
        " $pid; kill -CONT $pid; ended; [ -e " + out + " ] || exit $s; fi; kill -CONT $pid; ended; rm -f " + out +
        "; done; exit 99";
    const int status = std::system(("bash -c '" + script + "' 2>/dev/null").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 128 + number);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
}

TEST_F(Program, RoutesOfARunAreForced) {
  const std::string run = dir_.Path("run"), routes = dir_.Path("routes.safetensors");
  const std::string prompt = " --prompt 'Count from 48 to 50.' --max-tokens 4 ";
  ASSERT_EQ(Run("generate demo -q" + prompt + "--proof rows --out " + run).status, 0);
  ASSERT_EQ(Run("routes export -q " + run + " " + routes).err, "");
  const Outcome forced =
      Run("generate demo --ranks 3" + prompt + "--routes " + routes + " --proof rows --out " + dir_.Path("forced"));
  EXPECT_EQ(forced.status, 0) << forced.err;
  EXPECT_THAT(forced.err, HasSubstr("decisions forced, 0 of them other than the router's own"));
  const Outcome equal = Run("verify " + run + " " + dir_.Path("forced"));
  EXPECT_EQ(equal.status, 0) << equal.err;
  EXPECT_THAT(equal.err, HasSubstr("decisions forced by a file"));
  const Outcome axes = Run("generate demo --ranks 2 --pp 2 --dp 2" + prompt + "--routes " + routes);
  EXPECT_EQ(axes.status, 0) << axes.err;
  EXPECT_THAT(axes.err, HasSubstr("decisions forced, 0 of them other than the router's own"));
  Refused("generate demo -q --prompt 'Count from 1 to 9.' --routes " + routes, 4, {"routes.safetensors", "position"});
  Refused("score demo -q --text hi --logprobs --routes " + run + "/run.json", 4, {"run.json"});
}

TEST_F(Program, GradientsOfATrainerAreJudged) {
  const std::string a = dir_.Path("a.json"), b = dir_.Path("b.json");
  const std::string writer = "python3 " + SourceRoot() + "/tools/write_gradients.py ";
  ASSERT_EQ(std::system((writer + a + " --ranks 4").c_str()), 0);
  ASSERT_EQ(std::system((writer + b + " --ranks 4 --bucket-bytes 8192").c_str()), 0);
  EXPECT_EQ(Run("verify " + a + " " + b).status, 0);
  const Outcome differs = Run("verify --same-reduction " + a + " " + b);
  EXPECT_EQ(differs.status, 79);
  EXPECT_THAT(differs.err, HasSubstr("bucket 0: parameters"));
  EXPECT_EQ(Run("verify --same-reduction " + a + " " + a).status, 0);
  EXPECT_EQ(Run("verify " + Write("c.json", "{}")).status, 11);
  Refused("verify " + a + " " + dir_.Path(), 2, {"gradient sums", "found a folder"});
  Refused("verify " + a + " " + dir_.Path("none"), 3, {"none"});
}

TEST_F(Program, AChoiceIsExplained) {
  const Outcome sum = Run("explain allreduce --ranks 3 --numerics exact --bytes 2048 --tuning none");
  EXPECT_EQ(sum.status, 0) << sum.err;
  EXPECT_THAT(sum.out, testing::ContainsRegex("host +chosen"));
  EXPECT_THAT(sum.out, testing::ContainsRegex("peer +refused +ranks are on the processor"));
  EXPECT_THAT(sum.out, testing::ContainsRegex("one-shot +chosen +2048 bytes, and one shot goes up to 32768"));
  EXPECT_THAT(sum.out, testing::ContainsRegex("int64 +chosen"));
  EXPECT_THAT(sum.out, testing::ContainsRegex("float32 +refused"));
  EXPECT_THAT(Run("explain allreduce --ranks 3 --numerics fast --bytes 65536 --tuning none").out,
              testing::ContainsRegex("two-shot +chosen"));
  EXPECT_THAT(Run("explain gemm --force gemm=gemm/ref").out, testing::ContainsRegex("gemm/ref +chosen +forced"));
  Refused("explain gem", 2, {"gemm"});
  Refused("explain allreduce --ranks 1", 2, {"--ranks"});
  Refused("explain gemm --ranks 99", 2, {"--ranks", "99"});
  Refused("explain gemm --launch fibres", 2, {"--launch"});
  Refused("explain gemm --force gemm=gemm/ref,", 2, {"--force"});
}

TEST_F(Program, TheVerifierPassesItsOwnTest) {
  const Outcome outcome = Run("verify --selftest");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("of 10000 runs with a byte changed, 0 accepted"));
}

}  // namespace
}  // namespace trivet::cli
