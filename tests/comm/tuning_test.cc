// SPDX-License-Identifier: Apache-2.0
#include "comm/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  const std::string machine = "sums 1, NVIDIA H100, NVIDIA H100, links 0";
  EXPECT_EQ(tuning.Choose(machine, two).one_shot, (Crossovers{786432, 0}));
  tuning.Put({machine, two, {1048576, 262144}});
  tuning.Put({machine, {Backend::kCuda, false, 2}, {4096, 8192}});
  tuning.Put({"sums 1, a third machine", two, {8192, 8192}});
  const std::string path = dir_.Path("again.json");
  ASSERT_TRUE(tuning.Write(path).ok());
  const Tuning again = Tuning::Read(path).value();
  EXPECT_EQ(again.Of(machine).size(), 2U);
  EXPECT_EQ(again.Choose(machine, two).one_shot, (Crossovers{1048576, 262144}));
  EXPECT_TRUE(again.Choose(machine, two).measured);
  EXPECT_EQ(again.Choose("sums 1, a machine that is not here", {Backend::kCpu, false, 3}).one_shot,
            (Crossovers{8192, 16384}));
}

TEST_F(TuningTest, AnotherMachineGetsWhatIsBuiltIn) {
  const Tuning tuning = Tuning::Read(kOther).value();
  for (const Way& way : {Way{Backend::kCuda, true, 2}, Way{Backend::kCpu, false, 3}}) {
    const CrossoverChoice choice = tuning.Choose("sums 1, another one", way);
    EXPECT_FALSE(choice.measured);
    EXPECT_EQ(choice.one_shot, BuiltInCrossovers(way));
    EXPECT_THAT(choice.reason, HasSubstr("has nothing for " + way.Name() + " on this machine (sums 1, another one)"));
  }
  // Nor does a rank count that was not measured, on that very machine.
  EXPECT_FALSE(tuning.Choose("sums 1, a machine that is not here", {Backend::kCpu, false, 4}).measured);
  EXPECT_EQ(Tuning("no file").Choose("sums 1, another one", {Backend::kCpu, false, 2}).reason, "no file");
}

TEST_F(TuningTest, WhatCannotHaveBeenMeasuredIsRefused) {
  EXPECT_THAT(Refusal("786432", "1048577"),
              HasSubstr("one_shot_bytes.int64 of 2 ranks on cuda by peer: expected 0 to 1048576, found 1048577"));
  EXPECT_THAT(Refusal("8192", "262145"), HasSubstr("of 3 ranks on cpu by host: expected 0 to 262144, found 262145"));
  EXPECT_THAT(Refusal("16384", "-1"), HasSubstr("found -1"));
  EXPECT_THAT(Refusal("16384", "1e5"), HasSubstr("found 100000.0"));
  EXPECT_THAT(Refusal("16384", "99999999999999999999"), HasSubstr("one_shot_bytes.float32"));
  EXPECT_THAT(Refusal(", \"float32\": 16384", ""), HasSubstr("found null"));
  EXPECT_THAT(Refusal("\"ranks\": 3", "\"ranks\": 17"), HasSubstr("ranks: expected 2 to 16, found 17"));
  EXPECT_THAT(Refusal("\"ranks\": 3", "\"ranks\": \"3\""), HasSubstr("ranks"));
  EXPECT_THAT(Refusal("\"cpu\"", "\"tpu\""), HasSubstr("backend: expected cpu or cuda, found \"tpu\""));
  EXPECT_THAT(Refusal("\"host\"", "\"peer\""), HasSubstr("transport of cpu"));
  EXPECT_THAT(Refusal("sums 1, a machine that is not here", ""), HasSubstr("machine"));
  EXPECT_THAT(Refusal("tuning 1", "tuning 2"), HasSubstr("format: expected \"trivet tuning 1\""));
  EXPECT_THAT(Refusal("]", ""), HasSubstr("tuning.json"));
  EXPECT_THAT(Tuning::Read(Write("{}")).error().message, HasSubstr("format"));
  EXPECT_THAT(Tuning::Read(Write("{\"format\": \"trivet tuning 1\"}")).error().message, HasSubstr("results"));
  const std::string entry = R"({"machine": "a", "backend": "cpu", "transport": "host", "ranks": 3,
                                "one_shot_bytes": {"int64": 8, "float32": 8}})";
  const std::string begin = R"({"format": "trivet tuning 1", "results": [)";
  EXPECT_TRUE(Tuning::Read(Write(begin + entry + "]}")).ok());
  EXPECT_THAT(Tuning::Read(Write(begin + entry + ", " + entry + "]}")).error().message,
              HasSubstr("once, found it twice"));
  EXPECT_EQ(Tuning::Read(dir_.Path("none")).error().code, Code::kNotFound);
  EXPECT_EQ(Tuning::Open(dir_.Path("none")).error().code, Code::kNotFound);
  EXPECT_EQ(Tuning::Open("none").value().path(), "");
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
