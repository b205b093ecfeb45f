// SPDX-License-Identifier: Apache-2.0
#include "comm/tuning.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "base/str.h"
#include "tests/io/temp_dir.h"
#include "tests/support/paths.h"

namespace trivet::comm {
namespace {

using testing::HasSubstr;

const std::string kOther = SourceRoot() + "/tests/comm/tuning_of_another.json";

class TuningTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = dir_.Path("tuning.json");
    EXPECT_TRUE(WriteTextFile(path, text).ok());
    return path;
  }
  // The file of another machine with one piece of text changed; the message that refuses it.
  std::string Refusal(const std::string& text, const std::string& by) {
    std::string changed = ReadTextFile(kOther, 1 << 20).value();
    const size_t at = changed.find(text);
    EXPECT_NE(at, std::string::npos) << text;
    changed.replace(at, text.size(), by);
    const Result<Tuning> read = Tuning::Read(Write(changed));
    EXPECT_FALSE(read.ok()) << changed;
    if (read.ok()) return "";
    EXPECT_EQ(read.error().code, Code::kInvalid);
    EXPECT_THAT(read.error().message, testing::Not(HasSubstr("\n")));
    return read.error().message;
  }

  TempDir dir_;
};

TEST_F(TuningTest, AFileIsWhatWasWritten) {
  Tuning tuning = Tuning::Read(kOther).value();
  const Way two{Backend::kCuda, true, 2};
  const std::string machine = "sums 2, NVIDIA H100, NVIDIA H100, links 0";
  EXPECT_EQ(tuning.Choose(machine, two).one_shot, (Crossovers{786432, 0}));
  tuning.Put({machine, two, {1048576, 262144}});
  tuning.Put({machine, {Backend::kCuda, false, 2}, {4096, 8192}});
  tuning.Put({"sums 2, a third machine", two, {8192, 8192}});
  const std::string path = dir_.Path("again.json");
  ASSERT_TRUE(tuning.Write(path).ok());
  const Tuning again = Tuning::Read(path).value();
  EXPECT_EQ(again.Of(machine).size(), 2U);
  EXPECT_EQ(again.Choose(machine, two).one_shot, (Crossovers{1048576, 262144}));
  EXPECT_TRUE(again.Choose(machine, two).measured);
  EXPECT_EQ(again.Choose("sums 2, a machine that is not here", {Backend::kCpu, false, 3}).one_shot,
            (Crossovers{8192, 16384}));
}

TEST_F(TuningTest, AnotherMachineGetsWhatIsBuiltIn) {
  const Tuning tuning = Tuning::Read(kOther).value();
  for (const Way& way : {Way{Backend::kCuda, true, 2}, Way{Backend::kCpu, false, 3}}) {
    const CrossoverChoice choice = tuning.Choose("sums 2, another one", way);
    EXPECT_FALSE(choice.measured);
    EXPECT_EQ(choice.one_shot, BuiltInCrossovers(way));
    EXPECT_THAT(choice.reason, HasSubstr("has nothing for " + way.Name() + " on this machine (sums 2, another one)"));
  }
  // Nor does a rank count that was not measured, on that very machine.
  EXPECT_FALSE(tuning.Choose("sums 2, a machine that is not here", {Backend::kCpu, false, 4}).measured);
  EXPECT_EQ(Tuning("no file").Choose("sums 2, another one", {Backend::kCpu, false, 2}).reason, "no file");
}

TEST_F(TuningTest, WhatCannotHaveBeenMeasuredIsRefused) {
  EXPECT_THAT(
      Refusal("786432", "1048577"),
      HasSubstr("one_shot_bytes.int64 of 2 ranks on cuda by peer: expected 0, or 4096 to 1048576 bytes, which is "
                "what is measured, found 1048577"));
  EXPECT_THAT(
      Refusal("8192", "262145"),
      HasSubstr("of 3 ranks on cpu by host: expected 0, or 4096 to 262144 bytes, which is what is measured, found "
                "262145"));
  EXPECT_THAT(Refusal("8192", "4095"), HasSubstr("found 4095"));
  EXPECT_THAT(Refusal("16384", "-1"), HasSubstr("found -1"));
  EXPECT_THAT(Refusal("16384", "1e5"), HasSubstr("found 100000.0"));
  EXPECT_THAT(Refusal("16384", "99999999999999999999"), HasSubstr("one_shot_bytes.float32"));
  EXPECT_THAT(Refusal(", \"float32\": 16384", ""), HasSubstr("found null"));
  EXPECT_THAT(Refusal("\"ranks\": 3", "\"ranks\": 17"), HasSubstr("ranks: expected 2 to 16, found 17"));
  EXPECT_THAT(Refusal("\"ranks\": 3", "\"ranks\": \"3\""), HasSubstr("ranks"));
  EXPECT_THAT(Refusal("\"cpu\"", "\"tpu\""), HasSubstr("backend: expected cpu or cuda, found \"tpu\""));
  EXPECT_THAT(Refusal("\"host\"", "\"peer\""), HasSubstr("transport of cpu"));
  EXPECT_THAT(Refusal("sums 2, a machine that is not here", ""), HasSubstr("machine"));
  EXPECT_THAT(Refusal("tuning 1", "tuning 2"), HasSubstr("format: expected \"trivet tuning 1\""));
  EXPECT_THAT(Refusal("]", ""), HasSubstr("tuning.json"));
  EXPECT_THAT(Tuning::Read(Write("{}")).error().message, HasSubstr("format"));
  const auto results = [&](const std::string& text) {
    return Tuning::Read(Write("{\"format\": \"trivet tuning 1\"" + text + "}")).error().message;
  };
  EXPECT_THAT(results(""), HasSubstr("results: expected a list of at most 4096, found none;"));
  EXPECT_THAT(results(", \"results\": 5"), HasSubstr("results: expected a list of at most 4096, found 5;"));
  EXPECT_THAT(results(", \"results\": [1]"), HasSubstr("results: expected an object, found 1"));
  std::string many = "0";
  for (int i = 0; i < 4096; ++i) many += ", 0";
  EXPECT_THAT(results(", \"results\": [" + many + "]"), HasSubstr("at most 4096, found 4097 of them;"));
  const std::string entry = R"({"machine": "a", "backend": "cpu", "transport": "host", "ranks": 3,
                                "one_shot_bytes": {"int64": 4096, "float32": 0}})";
  const std::string begin = R"({"format": "trivet tuning 1", "results": [)";
  EXPECT_TRUE(Tuning::Read(Write(begin + entry + "]}")).ok());
  EXPECT_THAT(Tuning::Read(Write(begin + entry + ", " + entry + "]}")).error().message,
              HasSubstr("once, found it twice"));
  EXPECT_EQ(Tuning::Read(dir_.Path("none")).error().code, Code::kNotFound);
  EXPECT_EQ(Tuning::Open(dir_.Path("none")).error().code, Code::kNotFound);
  EXPECT_EQ(Tuning::Open("none").value().path(), "");
}

TEST_F(TuningTest, WeightsAreKept) {
  Tuning tuning = Tuning::Read(kOther).value();
  const std::string machine = "sums 2, NVIDIA H100, NVIDIA H100, links 0";
  const Way three{Backend::kCuda, true, 3};
  const Weights weights = Weights::Of(std::vector<int64_t>{500, 500, 0});
  EXPECT_EQ(tuning.Choose("sums 2, another one", three).weighted.from_bytes, INT64_MAX);
  EXPECT_EQ(tuning.Choose("sums 2, another one", three).weighted.weights, Weights::Equal(3));
  tuning.Put({machine, three, {4096, 8192}, {weights, 1 << 20}});
  ASSERT_TRUE(tuning.Write(dir_.Path("weights.json")).ok());
  const CrossoverChoice choice = Tuning::Read(dir_.Path("weights.json")).value().Choose(machine, three);
  EXPECT_EQ(choice.weighted.weights, weights);
  EXPECT_EQ(choice.weighted.from_bytes, 1 << 20);
  // And the entry beside it has none.
  const CrossoverChoice two =
      Tuning::Read(dir_.Path("weights.json")).value().Choose(machine, {Backend::kCuda, true, 2});
  EXPECT_TRUE(two.measured);
  EXPECT_EQ(two.weighted.from_bytes, INT64_MAX);
  EXPECT_EQ(two.weighted.weights, Weights::Equal(2));
}

TEST_F(TuningTest, WeightsThatCannotBeAreRefused) {
  const auto refusal = [&](const std::string& weighted) {
    return Refusal("\"ranks\": 3,", "\"ranks\": 3, \"weighted\": " + weighted + ",");
  };
  const auto with = [](const std::string& weights, const std::string& from) {
    return "{\"weights\": " + weights + ", \"from_bytes\": " + from + "}";
  };
  const std::string list =
      "weighted.weights of 3 ranks on cpu by host: expected a share of 1000 for each of three ranks or more, which are "
      "not all alike and 1000 together, found ";
  for (const std::string weights :
       {"[1,2]", "[500,500,1001]", "[600,-100,500]", "[500,0.5,500]", "[0,0,0]", "{\"a\":500,\"b\":500,\"c\":0}",
        "[1,1,1]", "[333,333,333]", "[1000,1000,0]", "[500,500,2]", "[498,500,0]", "[5,0,2]", "null", "500"}) {
    EXPECT_THAT(refusal(with(weights, "1048576")), HasSubstr(list + Quote(weights)));
  }
  EXPECT_THAT(Refusal("\"ranks\": 2,", "\"ranks\": 2, \"weighted\": " + with("[600, 400]", "1048576") + ","),
              HasSubstr("weighted.weights of 2 ranks"));
  for (const std::string from : {"0", "-1", "65536", "1048575", "8388609", "4611686018427387904", "1e6", "null"}) {
    EXPECT_THAT(refusal(with("[500, 500, 0]", from)),
                HasSubstr("weighted.from_bytes of 3 ranks on cpu by host: expected 1048576 to 8388608 bytes, which is "
                          "what is measured, found "));
  }
  EXPECT_THAT(refusal("{\"from_bytes\": 1048576}"), HasSubstr(list + "null"));
  EXPECT_THAT(refusal("{\"weights\": [500, 500, 0]}"), HasSubstr("weighted.from_bytes"));
  EXPECT_THAT(refusal("[1, 1, 1]"), HasSubstr("weighted: expected an object"));
}

// Rounding moves the sum of the shares: none that is measured is refused for that.
TEST_F(TuningTest, WhateverIsMeasuredIsTaken) {
  std::mt19937 random(5);
  Tuning tuning;
  for (int64_t ranks = 3; ranks <= 16; ++ranks) {
    const Way way{Backend::kCpu, false, ranks};
    for (const int64_t from : kLongSums) {
      for (int i = 0; i < 20; ++i) {
        std::vector<double> rates(static_cast<size_t>(ranks));
        for (double& rate : rates) rate = 5 + static_cast<double>(random() % 100);
        const Weights weights = WeightsFor(rates);
        if (weights == Weights::Equal(ranks)) continue;
        tuning.Put({fmt::format("sums 2, machine {}", i), way, {4096, MostOneShotBytes(way)}, {weights, from}});
      }
      const std::string path = dir_.Path("measured.json");
      ASSERT_TRUE(tuning.Write(path).ok());
      const Result<Tuning> read = Tuning::Read(path);
      ASSERT_TRUE(read.ok()) << read.error().message;
      for (int i = 0; i < 20; ++i) {
        const CrossoverChoice written = tuning.Choose(fmt::format("sums 2, machine {}", i), way);
        const CrossoverChoice again = read->Choose(fmt::format("sums 2, machine {}", i), way);
        EXPECT_EQ(again.weighted.weights, written.weighted.weights);
        EXPECT_EQ(again.weighted.from_bytes, written.weighted.from_bytes);
      }
    }
  }
}

TEST_F(TuningTest, UnknownKeysAreRefusedByName) {
  EXPECT_THAT(Refusal("\"results\"", "\"weights\": [], \"results\""),
              HasSubstr("the file: expected keys format, results, found \"weights\""));
  EXPECT_THAT(Refusal("\"ranks\": 3", "\"ranks\": 3, \"two_shot_bytes\": 5"),
              HasSubstr("results: expected keys machine, backend, transport, ranks, one_shot_bytes, weighted, found "
                        "\"two_shot_bytes\""));
  EXPECT_THAT(Refusal("\"int64\": 8192", "\"int64\": 8192, \"bf16\": 1"),
              HasSubstr("one_shot_bytes: expected keys int64, float32, found \"bf16\""));
  EXPECT_THAT(
      Refusal("\"ranks\": 3", "\"ranks\": 3, \"weighted\": {\"weights\": [1, 1, 1], \"from_bytes\": 0, \"chunks\": 4}"),
      HasSubstr("weighted: expected keys weights, from_bytes, found \"chunks\""));
}

// The examples of links that differ: a pair that is faster than the third rank, and so on.
TEST(WeightsFor, FinishTheBusiestLinkFirst) {
  const auto of = [](const std::vector<double>& rates) { return WeightsFor(rates).All(); };
  EXPECT_EQ(of({28, 28, 15}), (std::vector<int64_t>{500, 500, 0}));
  EXPECT_EQ(of({15, 28, 28}), (std::vector<int64_t>{0, 500, 500}));
  EXPECT_EQ(of({28, 28, 28, 28, 15}), (std::vector<int64_t>{250, 250, 250, 250, 0}));
  EXPECT_EQ(of({28, 28, 28, 28, 28, 15, 15}), (std::vector<int64_t>{195, 195, 195, 195, 195, 12, 12}));
  EXPECT_EQ(of({100, 1, 1}), (std::vector<int64_t>{1000, 0, 0}));
  for (const std::vector<double>& alike : {std::vector<double>{28, 27, 26}, {5, 5, 5, 5}, {28, 15}, {7}}) {
    EXPECT_EQ(WeightsFor(alike), Weights::Equal(std::ssize(alike)));
  }
  // No other shares do better: of random ones, none has a busiest link that is done sooner.
  std::mt19937 random(3);
  for (int64_t ranks = 3; ranks <= 8; ++ranks) {
    std::vector<double> rates(static_cast<size_t>(ranks));
    for (double& rate : rates) rate = 5 + static_cast<double>(random() % 100);
    const auto time = [&](const std::vector<int64_t>& weights) {
      const double sum = static_cast<double>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
      double latest = 0;
      for (size_t i = 0; i < rates.size(); ++i) {
        latest =
            std::max(latest, (1 + static_cast<double>(ranks - 2) * static_cast<double>(weights[i]) / sum) / rates[i]);
      }
      return latest;
    };
    const double best = time(WeightsFor(rates).All());
    std::vector<int64_t> other(rates.size());
    for (int64_t i = 0; i < 2000; ++i) {
      for (int64_t& weight : other) weight = 1 + random() % 1000;
      EXPECT_GE(time(other), 0.99 * best);
    }
  }
}

TEST(WeightedFrom, IsWhereAllLongerSumsGain) {
  EXPECT_EQ(WeightedFrom({}), INT64_MAX);
  EXPECT_EQ(WeightedFrom(std::vector<WeightedTimes>{{1, 10, 9}, {2, 20, 19.5}, {4, 40, 30}, {8, 80, 60}}), 4);
  EXPECT_EQ(WeightedFrom(std::vector<WeightedTimes>{{1, 10, 5}, {2, 20, 10}}), 1);
  EXPECT_EQ(WeightedFrom(std::vector<WeightedTimes>{{1, 10, 5}, {2, 20, 21}}), INT64_MAX);
}

TEST(BestCrossover, LosesLeast) {
  EXPECT_EQ(BestCrossover({}), 0);
  const std::vector<FormTimes> never = {{4096, 2, 1}, {8192, 3, 1}};
  EXPECT_EQ(BestCrossover(never), 0);
  const std::vector<FormTimes> always = {{4096, 1, 2}, {8192, 1, 3}};
  EXPECT_EQ(BestCrossover(always), 8192);
  // One measurement that was disturbed, below the border and above it.
  const std::vector<FormTimes> disturbed = {{1, 1, 3}, {2, 4, 3},   {3, 1, 3}, {4, 2, 3},
                                            {5, 5, 3}, {6, 2.9, 3}, {7, 9, 3}};
  EXPECT_EQ(BestCrossover(disturbed), 4);
}

}  // namespace
}  // namespace trivet::comm
