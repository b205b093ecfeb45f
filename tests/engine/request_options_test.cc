// SPDX-License-Identifier: Apache-2.0
#include "engine/request_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace trivet::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

TEST(RequestOptions, WhatIsAbsentStays) {
  GenerationRequest request;
  request.max_tokens = 9;
  request.sampling.temperature = 0.5;
  request.sampling.logprobs = 3;
  request.logprobs = true;
  request.stop = {"end"};
  ASSERT_TRUE(ReadRequest({{"prompt", "x"}, {"temperature", nullptr}, {"logprobs", nullptr}}, "line 1", &request).ok());
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_TRUE(request.logprobs);
  EXPECT_THAT(request.stop, ElementsAre("end"));
}

TEST(RequestOptions, AModelThatDoesNotSampleIsGreedy) {
  EXPECT_EQ(DefaultSampling({{"temperature", 0.6}, {"top_k", 20}}).value().temperature, 0.6);
  EXPECT_EQ(DefaultSampling({{"temperature", 0.6}, {"do_sample", false}}).value().temperature, 0);
  EXPECT_EQ(DefaultSampling(Json()).value().temperature, 1);
  EXPECT_EQ(DefaultSampling({{"do_sample", 3}}).error().code, Code::kInvalid);
}

TEST(RequestOptions, EveryKeyIsRead) {
  GenerationRequest request;
  const Json line = {{"temperature", 0.7},
                     {"top_k", 5},
                     {"top_p", 0.9},
                     {"min_p", 0.1},
                     {"seed", -2},
                     {"repetition_penalty", 1.1},
                     {"frequency_penalty", 0.2},
                     {"max_tokens", 7},
                     {"presence_penalty", -0.3},
                     {"stop", {"a", "b"}},
                     {"logprobs", 2},
                     {"ignore_eos", true},
                     {"priority", -4},
                     {"unknown", {{"kept", true}}}};
  ASSERT_TRUE(ReadRequest(line, "line 1", &request).ok());
  std::vector<std::string> keys;
  for (const auto& [key, value] : line.items()) keys.push_back(key);
  keys.pop_back();  // the unknown one
  EXPECT_THAT(RequestKeys(), UnorderedElementsAreArray(keys));
  const sampling::SamplingParams& params = request.sampling;
  EXPECT_EQ(params.temperature, 0.7);
  EXPECT_EQ(params.top_k, 5);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.min_p, 0.1);
  EXPECT_EQ(params.repetition_penalty, 1.1);
  EXPECT_EQ(params.frequency_penalty, 0.2);
  EXPECT_EQ(params.presence_penalty, -0.3);
  EXPECT_EQ(params.seed, static_cast<uint64_t>(-2));
  EXPECT_EQ(params.logprobs, 2);
  EXPECT_TRUE(request.logprobs);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.priority, -4);
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  ASSERT_TRUE(ReadRequest({{"stop", "c"}}, "line 2", &request).ok());
  EXPECT_THAT(request.stop, ElementsAre("c"));
}

TEST(RequestOptions, SeedsAreAny64Bits) {
  GenerationRequest request;
  ASSERT_TRUE(ReadRequest({{"seed", UINT64_MAX}}, "line 1", &request).ok());
  EXPECT_EQ(request.sampling.seed, UINT64_MAX);
  // As text, as in a field.
  for (const auto& [text, seed] : std::map<std::string, Json>{{"0", 0},
                                                              {"-1", -1},
                                                              {"-9223372036854775808", INT64_MIN},
                                                              {"9223372036854775808", 9223372036854775808U},
                                                              {"18446744073709551615", UINT64_MAX}}) {
    ASSERT_TRUE(ReadRequest({{"seed", seed}}, "line 1", &request).ok()) << text;
    EXPECT_EQ(ParseSeed(text, "--seed").value(), request.sampling.seed) << text;
  }
  for (const char* text : {"", "-", "1.5", "seven", "7 ", "-9223372036854775809", "18446744073709551616"}) {
    const Result<uint64_t> seed = ParseSeed(text, "--seed");
    ASSERT_FALSE(seed.ok()) << text;
    EXPECT_THAT(seed.error().message, HasSubstr("--seed: expected an integer from -9223372036854775808 to "
                                                "18446744073709551615"));
  }
}

TEST(RequestOptions, WholeNumbersAreIntegers) {
  const Json line = {{"seed", 5.0},        {"top_k", -0.0},  {"max_tokens", 1.5},   {"stop", {1.0}},
                     {"most", 0x1p53 - 1}, {"more", 0x1p53}, {"least", 1 - 0x1p53}, {"text", "1.0"}};
  const Json read = WithIntegers(line);
  for (const char* key : {"seed", "top_k", "most", "least"}) EXPECT_TRUE(read[key].is_number_integer()) << key;
  for (const char* key : {"max_tokens", "more"}) EXPECT_TRUE(read[key].is_number_float()) << key;
  EXPECT_EQ(read, line);  // in value
  EXPECT_TRUE(read["stop"][0].is_number_float());
  EXPECT_EQ(WithIntegers(5.0), Json(5.0));
}

TEST(RequestOptions, DefaultsOfAModelAreChecked) {
  EXPECT_EQ(DefaultSampling({{"do_sample", false}, {"temperature", 0.6}})->temperature, 0);
  for (const Json& config : {Json{{"temperature", -1}}, Json{{"top_p", 9}}, Json{{"top_k", "x"}}}) {
    const Result<sampling::SamplingParams> params = DefaultSampling(config);
    ASSERT_FALSE(params.ok()) << DumpJson(config);
    EXPECT_EQ(params.error().code, Code::kInvalid);
    EXPECT_THAT(params.error().message, HasSubstr("generation_config.json"));
  }
}

TEST(RequestOptions, WrongValuesAreNamed) {
  const struct {
    Json line;
    const char* named;
  } rows[] = {{{{"temperature", "hot"}}, "temperature"},
              {{{"temperature", -1}}, "temperature"},
              {{{"top_k", 1.5}}, "top_k"},
              {{{"top_p", 0}}, "top_p"},
              {{{"min_p", 2}}, "min_p"},
              {{{"repetition_penalty", 0}}, "repetition_penalty"},
              {{{"frequency_penalty", 3}}, "frequency"},
              {{{"presence_penalty", -3}}, "presence"},
              {{{"max_tokens", -1}}, "max_tokens"},
              {{{"logprobs", 101}}, "logprobs"},
              {{{"logprobs", -1}}, "logprobs"},
              {{{"ignore_eos", 1}}, "ignore_eos"},
              {{{"priority", 1.5}}, "priority"},
              {{{"priority", int64_t{1} << 31}}, "priority"},
              {{{"stop", 3}}, "stop"},
              {{{"stop", ""}}, "stop"},
              {{{"stop", {"a", 3}}}, "stop"},
              {{{"seed", 0.5}}, "seed"}};
  for (const auto& row : rows) {
    GenerationRequest request;
    const Status read = ReadRequest(row.line, "line 3", &request);
    ASSERT_FALSE(read.ok()) << DumpJson(row.line);
    EXPECT_EQ(read.error().code, Code::kInvalid);
    EXPECT_THAT(read.error().message, HasSubstr("line 3"));
    EXPECT_THAT(read.error().message, HasSubstr(row.named));
  }
}

}  // namespace
}  // namespace trivet::engine
