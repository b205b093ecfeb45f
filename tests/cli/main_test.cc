// SPDX-License-Identifier: Apache-2.0
// The program, command by command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "plan/families.h"
#include "plan/source_names.h"
#include "tests/cli/program.h"
#include "tests/support/paths.h"

namespace trivet::cli {
namespace {

using testing::HasSubstr;

TEST_F(Program, HelpShowsDefaults) {
  const Outcome help = Run("generate --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("INT=512"));
  EXPECT_THAT(help.out, HasSubstr("/reset"));
  EXPECT_EQ(help.err, "");
  EXPECT_EQ(Run("--version").status, 0);
}

// The next argument is not the value that is left out behind "=".
TEST_F(Program, AnEmptyValueIsOne) {
  const Outcome json = Run("generate demo -q --max-tokens 2 --prompt= --json");
  EXPECT_EQ(json.status, 0) << json.err;
  EXPECT_THAT(json.out, HasSubstr("\"token_ids\""));
  Refused("plan demo --ranks= --json", 2, {"--ranks"});
  Refused("serve demo -q --host=", 2, {"--host"});
  Refused("serve demo -q --host ''", 2, {"--host"});
}

TEST_F(Program, WrongArgumentsAreRefused) {
  Refused("", 2, {"--help"});
  Refused("no-such-command", 2, {"--help"});
  for (const std::string value : {"0", "17", "-3", "three", "''", "1.5"}) {
    Refused("plan demo --ranks " + value, 2, {"ranks"});
  }
  Refused("plan demo --pp 9", 6, {"--pp", "at most 8 stages"});
  Refused("plan demo --pp-layers 1,3", 2, {"--pp-layers", "8 in all"});
  for (const std::string list : {"1,,7", ",1,7", "1,7,", "','", "1,seven"}) {
    Refused("plan demo --pp-layers " + list, 2, {"--pp-layers"});
  }
  EXPECT_EQ(Run("plan demo --pp-layers 1 --pp-layers 3,4").status, 0);
  Refused("plan demo --cut attn=pad,,experts=whole", 2, {"attn=pad,,experts=whole"});
  Refused("generate demo -q --prompt hi --force gemm=gemm/ref,,", 2, {"--force"});
  Refused("generate demo -q --prompt hi --fault other-replica", 2, {"--fault", "--dp"});
  Refused("generate demo -q --prompt hi --pp 2 --fault hand-bf16:rank=1", 2, {"--fault", "last stage"});
  Refused("generate demo -q --prompt hi --ranks 3 --fault partial-bf16:rank=1:site=100", 2,
          {"--fault", "rank 1 has", "from 0 to", "found 100"});
  Refused("plan demo --ranks 3 --pp 3 --dp 2", 2,
          {"at most 16", "2 replicas of 3 stages of 1 shares of sequences of 3"});
  Refused("plan demo --cp 0", 2, {"--cp", "1 to 16"});
  Refused("plan demo --cp 2 --cp-stretch -1", 2, {"--cp-stretch", "found -1"});
  Refused("plan demo --cp 2 --cp-split striped", 2, {"--cp-split", "contiguous or zigzag"});
  Refused("plan demo --backend cuda --cp 2", 5, {"--cp", "--backend cpu"});
  Refused("plan demo --backend cuda --ranks 2 --sp", 5, {"--sp", "--backend cpu"});
  Refused("generate demo -q --prompt hi --ranks 2 --sp --numerics fast --compress-sums", 5,
          {"--compress-sums", "--sp"});
  Refused("generate demo -q --prompt hi --ranks 2 --sp --fault sp-first", 2, {"--fault", "--cp"});
  Refused("generate demo -q --prompt hi --fault other-split", 2, {"--fault", "--cp"});
  Refused("generate demo -q --prompt hi --backend cuda --dp 2", 5, {"--dp", "--backend cpu"});
  Refused("plan demo --backend cuda --pp 2", 5, {"--pp", "--backend cpu"});
  Refused("generate demo -q --prompt hi --temperature ''", 2, {"--temperature"});
  Refused("generate demo -q --prompt hi --logprobs 101", 2, {"--logprobs", "0 to 100"});
  Refused("generate demo -q --chat --prompt hi", 2, {"--chat"});
  Refused("score demo -q --text hi", 2, {"--out"});
  Refused("score demo -q --text hi --perplexity --hidden", 2, {"--out", "--hidden"});
  Refused("bench demo --numerics fast", 2, {"--numerics"});
  Refused("bench", 2, {"MODEL"});
  Refused("bench allreduce --ranks 1", 2, {"--ranks", "2 to 16"});
  Refused("bench p2p --ranks 17", 2, {"--ranks", "2 to 16", "17"});
  Refused("bench allreduce --soak -1", 2, {"--soak", "-1"});
  Refused("bench --ranks 3 allreduce", 2, {"--ranks", "behind"});
  Refused("bench demo p2p", 2, {"MODEL", "behind"});
  Refused("bench --json allreduce --soak 10", 2, {"--json", "behind"});
  Refused("bench allreduce --type bf16", 2, {"--type"});
  Refused("bench allreduce --norm -1", 2, {"--norm", "1 to 1000000"});
  Refused("bench allreduce --norm 64 --soak 10", 2, {"--norm", "--soak"});
  Refused("bench allreduce --nccl libnccl.so.2", 5, {"NCCL", "--backend cuda"});
  Refused("bench allreduce --transport peer", 5, {"--transport peer", "--backend cuda"});
  Refused("bench demo --transport nccl", 2, {"--transport"});
  Refused("generate demo -q --prompt hi --prefix-cache maybe", 2, {"--prefix-cache", "on or off"});
  const std::string lines = Write("lines.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
  Refused("generate demo -q --raw --prompts " + lines, 2, {"--raw", "line 1"});
  Refused("generate demo -q --prompts " + Write("both.jsonl", "{\"prompt\":\"x\",\"token_ids\":[1]}"), 4, {"line 1"});
  Refused("plan " + dir_.Path("nothing"), 3, {"nothing"});
}

TEST_F(Program, ModelsAreWrittenAnewAndScored) {
  for (const std::string command : {"quantize demo %s --format mxfp4", "pad demo %s --ranks 5"}) {
    const std::string out = dir_.Path(command.substr(0, command.find(' ')));
    const std::string arguments = std::string(command).replace(command.find("%s"), 2, out);
    const Outcome written = Run(arguments + " --json --quiet --shard-size 8MB");
    ASSERT_EQ(written.status, 0) << written.err;
    const Result<Json> summary = ParseJson(written.out, "summary");
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_GE((*summary)["files"]["weights"].size(), 2U);
    EXPECT_GT((*summary)["bytes"].get<int64_t>(), 8000000);
    const Outcome scored = Run("score " + out + " -q --ranks 3 --text 'Count from 1 to 3.' --perplexity");
    EXPECT_EQ(scored.status, 0) << scored.err;
    EXPECT_THAT(scored.out, HasSubstr("\"perplexity\""));
    Refused(arguments + " -q", 2, {"empty or does not exist"});
  }
  const std::string out = dir_.Path("refused");
  Refused("quantize demo " + out + " -q", 2, {"--format"});
  Refused("quantize demo " + out + " -q --format fp8 --shard-size 0", 2, {"--shard-size"});
  Refused("quantize demo " + out + " -q --format fp8 --head", 2, {"--head"});
  Refused("pad demo " + out + " -q", 2, {"--ranks"});
  Refused("pad demo " + out + " -q --ranks 17", 2, {"--ranks", "1 to 16"});
  Refused("pad demo " + out + " -q --ranks 3 --vocab mask", 2, {"--vocab"});
  const std::string cases = CaseDir("");
  Refused("quantize " + cases + "qwen3-fp8 " + out + " -q --format fp8", 5, {"unquantised"});
  Refused("pad " + cases + "llama " + out + " -q --ranks 3", 6, {"hidden width"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Program, ExchangesBetweenRanksAreMeasuredAndChecked) {
  for (const std::string launch : {"threads", "processes"}) {
    const Outcome soak = Run("bench allreduce --ranks 3 --soak 2000 --launch " + launch);
    EXPECT_EQ(soak.status, 0) << soak.err;
    EXPECT_EQ(soak.out, "2000 sums over 3 ranks are right\n");
  }
  const Outcome sums = Run("bench allreduce --json");
  ASSERT_EQ(sums.status, 0) << sums.err;
  const Result<Json> line = ParseJson(sums.out.substr(0, sums.out.find('\n')), "first line");
  ASSERT_TRUE(line.ok());
  EXPECT_EQ((*line)["algorithm"], "one-shot");
  EXPECT_GT((*line)["eager_us"].get<double>(), 0);
  EXPECT_EQ(Run("bench allreduce --soak 10 --json").out, "{\"ranks\":2,\"right_sums\":10}\n");
  const Outcome norms = Run("bench allreduce --norm 640 --ranks 3");
  EXPECT_EQ(norms.status, 0) << norms.err;
  EXPECT_THAT(norms.out, testing::ContainsRegex("8 rows of 640 +sum, then norm: eager +[0-9.]+ us .*as one: -"));
  const Outcome links = Run("bench p2p --ranks 4");  // more ranks than most small machines have cores
  EXPECT_EQ(links.status, 0) << links.err;
  EXPECT_THAT(links.out, HasSubstr("rank  3 to  2"));
  EXPECT_THAT(links.out, testing::ContainsRegex("rank  3 to all others at once +writes +[0-9.]+ GB/s"));
}

TEST_F(Program, AFifoForAFileIsAnErrorAndNoHang) {
  ASSERT_EQ(::mkfifo((dir_.Path("config.json")).c_str(), 0600), 0);
  Refused("plan " + dir_.Path(), 4, {"config.json"});
}

TEST_F(Program, LinesOfAPromptFileHaveTheirOwnSampling) {
  const std::string file = Write("prompts.jsonl",
                                 "{\"prompt\":\"Count from 3 to 6.\",\"max_tokens\":2,\"logprobs\":1}\n"
                                 "{\"prompt\":\"Count from 3 to 6.\",\"max_tokens\":3}\n");
  const Outcome run = Run("generate demo -q --temperature 0 --json --prompts " + file);
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<std::string> lines = Split(run.out, '\n');
  ASSERT_EQ(lines.size(), 3U);
  const Json first = ParseJson(lines[0], "first").value(), second = ParseJson(lines[1], "second").value();
  EXPECT_EQ(first["token_ids"].size(), 2U);
  EXPECT_EQ(first["logprobs"].size(), 2U);
  EXPECT_EQ(second["token_ids"].size(), 3U);
  EXPECT_EQ(Find(second, "logprobs"), nullptr);
  const Outcome text = Run("generate demo -q --temperature 0 --prompts " + file);
  EXPECT_THAT(text.out, HasSubstr("\"logprob\""));
  Refused("generate demo -q --prompts " + Write("bad.jsonl", "{\"prompt\":\"x\",\"top_p\":7}"), 4, {"line 1", "top_p"});
  // A seed is the same number in a line and in a flag.
  const std::string seeded = Write("seed.jsonl", "{\"prompt\":\"Hi\",\"seed\":-1}");
  const std::string sampled = "generate demo -q --json --temperature 2 --max-tokens 8 ";
  const Outcome line = Run(sampled + "--prompts " + seeded), flag = Run(sampled + "--prompt Hi --seed -1");
  EXPECT_EQ(flag.status, 0) << flag.err;
  EXPECT_EQ(flag.out, line.out);
  EXPECT_NE(Run(sampled + "--prompt Hi").out, line.out);
  // A number without a fraction is an integer, as over HTTP.
  const std::string whole = Write("whole.jsonl", "{\"prompt\":\"Hi\",\"seed\":-1.0,\"max_tokens\":8.0}");
  EXPECT_EQ(Run(sampled + "--prompts " + whole).out, line.out);
  Refused("generate demo -q --prompts " + Write("half.jsonl", "{\"prompt\":\"x\",\"seed\":0.5}"), 4,
          {"line 1", "seed", "0.5"});
}

TEST_F(Program, AKeyOfAPromptFileThatNothingReadsIsRefused) {
  const std::string generate = "generate demo -q --max-tokens 2 --prompts ";
  const std::string good =
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"add_generation_prompt\":true,"
      "\"tools\":null,\"kwargs\":{},\"prompt\":null}\n";  // null: not given
  EXPECT_EQ(Run(generate + Write("good.jsonl", good)).status, 0);
  Refused(generate + Write("typo.jsonl", good + "{\"prompt\":\"x\",\"temprature\":0}"), 4,
          {"typo.jsonl, line 2: \"temprature\": expected", "prompt, messages, token_ids", "temperature", "logprobs"});
  // Beside a prompt no template reads them.
  Refused(generate + Write("tools.jsonl", "{\"prompt\":\"x\",\"tools\":[]}"), 4, {"line 1: \"tools\": expected"});
}

TEST_F(Program, MapsOfExpertsAreMadeShownComparedAndChecked) {
  const std::string block = dir_.Path("block.json"), other = dir_.Path("other.json"), pairs = dir_.Path("made.json");
  ASSERT_EQ(Run("placement make demo --ep 3 --out " + block).status, 0);
  ASSERT_EQ(Run("placement make --experts 10 --ep 4 --random --seed 3 --label v9 --out " + other).status, 0);
  const Outcome shown = Run("placement show " + block);
  EXPECT_THAT(shown.out, HasSubstr("    1        3         4  4 5 6\n"));
  const Result<Json> same = ParseJson(Run("placement show --json " + block).out, "map");
  ASSERT_TRUE(same.ok()) << same.error().message;
  EXPECT_EQ((*same)["tables"][2], Json({7, 8, 9}));
  // The same map from its pairs, and from its flat list: one content.
  Json list = Json::array();
  for (int e = 0; e < 10; ++e) list.push_back({(*same)["ep_rank"][e], e - (e < 4 ? 0 : e < 7 ? 4 : 7)});
  const std::string file = Write("pairs.json", DumpJson(list));
  ASSERT_EQ(Run("placement make --pairs " + file + " --semantics rank_local --out " + pairs).status, 0);
  EXPECT_THAT(Run("placement diff " + block + " " + pairs).out, HasSubstr("0 of 10 experts moved"));
  const std::string flat = Write("flat.json", DumpJson((*same)["logical_to_physical"]));
  const Result<Json> again = ParseJson(Run("placement make --ep 3 --logical-to-physical " + flat).out, "map");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)["content"], (*same)["content"]);
  const Result<Json> moves = ParseJson(Run("placement diff --json " + block + " " + other).out, "moves");
  ASSERT_TRUE(moves.ok()) << moves.error().message;
  EXPECT_EQ((*moves)["groups"], Json({3, 4}));
  EXPECT_GT((*moves)["moved"].size(), 0U);
  EXPECT_THAT(Run("placement check " + other + " demo --ranks 4 --expect v9 --json").out, HasSubstr("\"verdict\":0"));
}

TEST_F(Program, WhatIsNoMapOfExpertsIsRefused) {
  const std::string good = dir_.Path("good.json");
  ASSERT_EQ(Run("placement make demo --ep 3 --out " + good).status, 0);
  Json map = ReadJsonFile(good).value();
  map["tables"][1][0] = -1;
  const std::string hole = Write("hole.json", DumpJson(map));
  Refused("placement check " + hole, 4, {"INVALID_PLACEMENT_MAP (64)", "fill the hole"});
  Refused("placement check " + hole + " --expect v1", 10, {"PLACEMENT_MAP_VERSION_MISMATCH (65)"});
  Refused("placement check " + good + " demo --ranks 2", 4, {"(64)", "2 ranks", "3 groups"});
  Refused("placement show " + hole, 4, {"hole.json"});
  Refused("placement check " + dir_.Path("none.json"), 3, {"none.json"});
  Refused("placement check " + Write("list.json", "[]"), 4, {"list.json"});
  Refused("placement make", 2, {"MODEL", "--experts"});
  Refused("placement make demo --experts 10", 2, {"--experts"});
  Refused("placement make --experts 4 --ep ''", 2, {"--ep"});
  for (const std::string strategy : {"linear", "identity", "irregular"}) {
    Refused("placement make --experts 4 --strategy " + strategy, 2,
            {"--strategy: expected block or interleave, found"});
  }
  Refused("placement make --experts 4 --random --pairs x", 2, {"--random"});
  Refused("placement make --experts 4 --random --strategy block", 2, {"--strategy"});
  Refused("placement make demo --pairs " + Write("two.json", "[[0,0],[1,0]]"), 4,
          {"two.json", "10 entries", "demo", "found 2"});
  Refused("placement make --pairs " + Write("pairs.json", "[[0,0],[0,0]]"), 4, {"slot 0 of group 0"});
  Refused("placement make --pairs " + Write("bad.json", "[[0,0],[0]]"), 4, {"expert 1"});
  Refused("placement make --logical-to-physical " + Write("flat.json", "{\"a\":\"b\"}"), 4, {"flat.json"});
  Refused("placement", 2, {"subcommand"});
  Refused("placement make --experts 4 --label \"$(printf '\\377')\"", 2, {"label", "UTF-8"});
  Refused("placement make --experts 4 --seed 5", 2, {"--seed", "--random"});
  Refused("placement make --experts 99999999999999999999", 2, {"--experts", "found \"99999999999999999999\""});
  for (const std::string ranks : {"17", "-1"}) {
    Refused("placement check " + good + " --ranks " + ranks, 2, {"--ranks", "1 to 16", "found " + ranks});
  }
  Refused("plan demo --ranks 2 --placement " + good, 6, {"good.json", "2 ranks", "3 groups"});
  Refused("plan demo --ranks 3 --placement " + hole, 4, {"hole.json"});
  Refused("plan demo --ranks 3 --ep -1", 2, {"--ep"});
  Refused("generate demo -q --prompt hi --ranks 2 --ep 3", 6, {"--ep: expected at most 2 ranks, found 3"});
  Refused("plan demo --ep 3", 6, {"--ep: expected at most 1 rank, found 3"});
  Refused("plan demo --ranks 2 --ep 2 --placement " + good, 2, {"--ep", "good.json"});
  Refused("plan " + CaseDir("llama") + " --placement " + good, 2, {"good.json", "routed experts"});
  Refused("plan demo --ranks 3 --ep 2 --cut experts=whole", 2, {"experts"});
  Refused("plan " + CaseDir("llama") + " --ep 1", 2, {"routed experts"});
  Refused("placement make " + CaseDir("llama"), 2, {"routed experts"});
}

TEST_F(Program, NoValueOfAnOptionIsDropped) {
  Refused("generate demo -q -p one -p two", 2, {"--prompt: expected one value, found 2", "\"two\""});
  Refused("generate demo -q --tp 2 -p one -n 3", 2, {"--ranks: expected one value, found 2"});
  Refused("placement make --experts 4 --ep 2 --ep 2 --ep 2", 2, {"--ep: expected one value, found 3"});
  Refused("bench allreduce --ranks 2 --ranks 3", 2, {"--ranks: expected one value, found 2"});
  Refused("plan demo --cut attn=pad --cut attn=uneven", 2, {"attn twice"});
  Refused("generate demo -q -p hi --force gemm=gemm/ref --force gemm=gemm/avx2", 2, {"--force", "two for gemm"});
  const Outcome lists = Run("generate demo -q -q -p hi --max-tokens 1 --stop a --stop b --force gemm=gemm/ref");
  EXPECT_EQ(lists.status, 0) << lists.err << "a flag has no value to lose, and a list takes all";
}

// Neither "none" nor "any": a script's unset variable.
TEST_F(Program, AnEmptyTextIsRefused) {
  const std::string good = dir_.Path("good.json");
  ASSERT_EQ(Run("placement make demo --ep 3 --out " + good).status, 0);
  Refused("plan demo --ranks 3 --placement ''", 2, {"--placement", "found nothing"});
  Refused("plan demo --ranks 3 --cut ''", 2, {"--cut", "found nothing"});
  Refused("plan demo --dummy-weights ''", 2, {"--dummy-weights", "found nothing"});
  Refused("generate demo -q --prompt hi --placement ''", 2, {"--placement", "found nothing"});
  Refused("placement check ''", 2, {"FILE", "found nothing"});
  Refused("placement check " + good + " ''", 2, {"MODEL", "found nothing"});
  Refused("placement check " + good + " --expect ''", 2, {"--expect", "found nothing"});
  Refused("placement show ''", 2, {"FILE", "found nothing"});
  Refused("placement diff " + good + " ''", 2, {"TO", "found nothing"});
  for (const std::string flag : {"--pairs", "--logical-to-physical", "--strategy", "--label", "--semantics", "--out"}) {
    Refused("placement make --experts 4 " + flag + " ''", 2, {flag, "found nothing"});
  }
}

TEST_F(Program, AListOfExpertsIsAList) {
  for (const std::string flag : {"--pairs ", "--logical-to-physical "}) {
    for (const std::string text : {"{\"a\":[0,0]}", "7", "null", "[]", "[18446744073709551615]"}) {
      Refused("placement make " + flag + Write("list.json", text), 4, {"list.json: expected a list of", "by expert"});
    }
  }
  const std::string pairs = Write("far.json", "[[4000000000,0]]"),
                    wide = Write("wide.json", "[[18446744073709551615,0]]");
  Refused("placement make --pairs " + pairs, 4, {"far.json", "group 4000000000"});
  Refused("placement make --pairs " + wide, 4, {"wide.json", "[18446744073709551615,0] for expert 0"});
  Refused("placement make --experts 3 --pairs " + Write("two.json", "[[0,0],[0,1]]"), 4, {"two.json", "3", "found 2"});
  Refused("placement make --semantics rank_local --logical-to-physical " + Write("twice.json", "[0,0]"), 4,
          {"twice.json", "give every expert an id of its own\n"});
}

TEST_F(Program, TheVerdictOnAMapIsJsonWhateverItIs) {
  const std::string good = dir_.Path("good.json");
  ASSERT_EQ(Run("placement make demo --ep 3 --label v7 --out " + good).status, 0);
  Json map = ReadJsonFile(good).value();
  map["tables"] = "x";
  const std::string bad = Write("bad.json", DumpJson(map));
  const struct {
    std::string arguments;
    int status, verdict;
    const char* name;
  } cases[] = {{good + " --expect v7", 0, 0, "PASS"},
               {bad, 4, 64, "INVALID_PLACEMENT_MAP"},
               {good + " demo --ranks 2", 4, 64, "INVALID_PLACEMENT_MAP"},
               {bad + " --expect v6", 10, 65, "PLACEMENT_MAP_VERSION_MISMATCH"}};
  for (const auto& test : cases) {
    const Outcome run = Run("placement check --json " + test.arguments);
    EXPECT_EQ(run.status, test.status) << run.err;
    const Result<Json> verdict = ParseJson(run.out, "verdict");
    ASSERT_TRUE(verdict.ok()) << test.arguments << run.out;
    EXPECT_EQ((*verdict)["verdict"], test.verdict);
    EXPECT_EQ((*verdict)["name"], test.name);
    EXPECT_EQ(verdict->contains("sentence"), test.verdict != 0);
    EXPECT_EQ(run.err.empty(), test.verdict == 0) << run.err;
  }
}

TEST_F(Program, PlanSizesRanksByTheMemoryThatIsMeant) {
  EXPECT_THAT(Run("plan demo").out, HasSubstr(" available (machine), at most "));
  const Outcome gpus = Run("plan demo --ranks 3 --backend cuda --memory 2G");
  EXPECT_THAT(gpus.out, HasSubstr(" of 2.0 GB available (--memory), at most 1.6 GB"));
  // With GPUs or without.
  EXPECT_THAT(Run("plan demo --backend cuda").out,
              testing::AnyOf(HasSubstr(" available (GPUs), at most "), HasSubstr("or say with --memory how much")));
  EXPECT_THAT(Run("plan demo --memory 1M").out, HasSubstr("not on this machine: "));
  Refused("plan demo --memory 2X", 2, {"--memory"});
  Refused("plan demo --memory -1", 2, {"--memory", "found \"-1\""});
  const auto tokens = [&](const std::string& dtype) {
    const Outcome plan = Run("plan demo --memory 140M --json --kv-cache-dtype " + dtype);
    return ParseJson(plan.out, "plan")->at("memory").at("kv_tokens").get<int64_t>();
  };
  EXPECT_GT(tokens("fp8"), tokens("auto") * 3);
  EXPECT_EQ(tokens("fp8 --backend cuda"), tokens("fp8"));
  Refused("plan demo --kv-cache-dtype fp4", 2, {"--kv-cache-dtype: expected auto or fp8"});
}

TEST_F(Program, APlanShowsOneLayoutForItsRankCount) {
  const std::string plan = Run("plan demo --ranks 3 --ep 2 --pad-to 5").out;
  EXPECT_THAT(plan, HasSubstr("106% of a token's experts on average, with whole experts"));
  EXPECT_THAT(plan, HasSubstr(", padding included\n"));
  const std::string others = plan.substr(plan.find("Other rank counts"));
  EXPECT_THAT(others, HasSubstr("\n    2 "));
  EXPECT_THAT(others, testing::Not(HasSubstr("\n    3 ")));
}

TEST_F(Program, AMapOfExpertsChangesNoBit) {
  const std::string map = dir_.Path("map.json");
  ASSERT_EQ(Run("placement make demo --ep 4 --random --seed 1 --out " + map).status, 0);
  for (const std::string& where : {"--ranks 5 --placement " + map, std::string("--ranks 5 --ep 2")}) {
    const Outcome run = Run("generate demo -q --temperature 0 --max-tokens 4 --prompt hi --compare-ranks 1 " + where);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.err, HasSubstr("byte for byte: equal")) << where;
  }
  const Outcome plan = Run("plan demo --ranks 5 --json --placement " + map);
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(ParseJson(plan.out, "plan").value()["layout"]["placement"], ReadJsonFile(map).value());
}

TEST_F(Program, APlantedFaultIsNotInWhatItIsComparedWith) {
  for (const std::string ranks : {"1", "4", "5"}) {
    const Outcome run = Run(
        "generate demo -q --max-tokens 2 --prompt hi --ranks 5 --fault partial-bf16:rank=3 --compare-ranks " + ranks);
    EXPECT_EQ(run.status, 10) << ranks;
    EXPECT_THAT(run.err, HasSubstr("logits: expected the bytes of " + ranks + " ranks")) << run.err;
  }
}

TEST_F(Program, AFileOverTheSizeLimitIsAWriteErrorAndLeavesNothing) {
  const std::string out = dir_.Path("logits.safetensors");
  const Outcome run = Run("score demo -q --text 'Count from 3 to 6.' --out " + out);
  ASSERT_EQ(run.status, 0) << run.err;
  ASSERT_TRUE(std::filesystem::remove(out));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Refused("score demo -q --text 'Count from 3 to 6.' --out " + out, 8, {"logits.safetensors"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  for (const auto& entry : std::filesystem::directory_iterator(dir_.Path())) {
    EXPECT_EQ(entry.path().string().find("logits"), std::string::npos) << entry.path();
  }
}

TEST_F(Program, WhatIsLeftOutIsSaidOnce) {
  const Outcome padded = Run("pad demo " + dir_.Path("padded") + " --ranks 3");
  ASSERT_EQ(padded.status, 0) << padded.err;
  const size_t first = padded.err.find("multi-token-prediction head");
  ASSERT_NE(first, std::string::npos) << padded.err;
  EXPECT_EQ(padded.err.find("multi-token-prediction head", first + 1), std::string::npos) << padded.err;
  EXPECT_THAT(padded.err, HasSubstr("are left out"));
  const Outcome quantized = Run("quantize demo " + dir_.Path("quantized") + " --format fp8");
  EXPECT_THAT(quantized.err, HasSubstr("notice: ")) << "of opening the model";
}

TEST_F(Program, AnInterruptedRewriteLeavesNothing) {
  for (const std::string command : {"quantize demo OUT --format fp8", "pad demo OUT --ranks 3"}) {
    const std::string out = dir_.Path("model");
    std::string arguments = command;
    arguments.replace(arguments.find("OUT"), 3, out);
    // Stopped while it writes, and then ended.
    const std::string script = ProgramPath() + " " + arguments + " >/dev/null 2>&1 & pid=$!; while ! ls " + out +
                               "/* >/dev/null 2>&1 && kill -0 $pid; do :; done; kill -STOP $pid; ls " + out +
                               "; kill -TERM $pid; kill -CONT $pid; wait $pid; exit $?";
    const int status = std::system(("bash -c '" + script + "' >" + dir_.Path("seen")).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM) << command;
    EXPECT_NE(ReadTextFile(dir_.Path("seen"), 1 << 16).value(), "") << "something was there to remove";
    EXPECT_FALSE(std::filesystem::exists(out)) << command;
  }
}

TEST_F(Program, AFullContextEndsAPipedChat) {
  const std::string input = Write("lines", "Count from 3 to 6.\n");
  const std::string binary = ProgramPath();
  const int status =
      std::system((binary + " generate demo -q --chat --max-model-len 8 <" + input + " >/dev/null 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(Program, RunsWithKeysAndValuesInFp8AreComparedAmongThemselves) {
  const std::string plain = dir_.Path("plain"), one = dir_.Path("one"), three = dir_.Path("three");
  const std::string generate = "generate demo -q --prompt 'Count from 48 to 50.' --max-tokens 4 --proof digest --out ";
  ASSERT_EQ(Run(generate + plain).status, 0);
  ASSERT_EQ(Run(generate + one + " --kv-cache-dtype fp8").status, 0);
  ASSERT_EQ(Run(generate + three + " --kv-cache-dtype fp8 --ranks 3 --launch processes").status, 0);
  EXPECT_EQ(Run("verify " + one + " " + three).status, 0);
  const Outcome mixed = Run("verify " + plain + " " + one);
  EXPECT_EQ(mixed.status, 10);
  EXPECT_THAT(mixed.err, HasSubstr("kv64-e4m3"));
}

// A checkpoint of 70 billion bf16 weights in 30 files, whose data are holes: a plan reads headers alone.
TEST_F(Program, APlanOf140GigabytesTakesUnderASecond) {
  const char* const config =
      R"({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
          "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256, "rope_theta": 500000.0,
          "rms_norm_eps": 1e-5, "max_position_embeddings": 8192})";
  Write("config.json", config);
  const plan::Geometry geometry =
      plan::ReadGeometry({ParseJson(config, "config").value(), Json::object({{"rope_theta", 500000.0}})}).value();
  const plan::SourceNames names =
      plan::DetectNames(geometry, [](const std::string& name) { return name == "model.embed_tokens.weight"; }).value();
  const std::vector<plan::SourceTensor> tensors = plan::RequiredTensors(geometry, names);
  constexpr size_t kFiles = 30;
  std::vector<Json> headers(kFiles, Json::object());
  std::vector<int64_t> sizes(kFiles, 0);
  Json map = Json::object();
  int64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t bytes = 2;
    for (const int64_t extent : tensors[i].shape) bytes *= extent;
    const size_t file = i * kFiles / tensors.size();
    headers[file][tensors[i].name] = {
        {"dtype", "BF16"}, {"shape", tensors[i].shape}, {"data_offsets", {sizes[file], sizes[file] + bytes}}};
    map[tensors[i].name] = "part-" + std::to_string(file) + ".safetensors";
    sizes[file] += bytes;
    total += bytes;
  }
  EXPECT_GT(total, int64_t{140'000'000'000});
  for (size_t file = 0; file < kFiles; ++file) {
    const std::string header = DumpJson(headers[file]);
    std::string bytes(8, '\0');
    for (int i = 0; i < 8; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(header.size() >> (8 * i) & 255);
    const std::string path = Write("part-" + std::to_string(file) + ".safetensors", bytes + header);
    std::filesystem::resize_file(path, 8 + header.size() + static_cast<uint64_t>(sizes[file]));
  }
  Write("model.safetensors.index.json", DumpJson({{"metadata", {{"total_size", total}}}, {"weight_map", map}}));
  const int64_t begin = NowUs();
  const Outcome outcome = Run("plan " + dir_.Path() + " --ranks 3");
  EXPECT_LT(NowUs() - begin, 1'000'000);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("query head"));
}

}  // namespace
}  // namespace trivet::cli
