// SPDX-License-Identifier: Apache-2.0
#include "proof/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"

namespace trivet::proof {
namespace {

using testing::HasSubstr;

Json Bucket(int64_t index, std::vector<std::string> parameters) {
  return {{"bucket", static_cast<uint64_t>(index)},
          {"parameters", std::move(parameters)},
          {"ranks", {0U, 1U}},
          {"kind", "all-reduce"},
          {"actual", "ring"},
          {"order", "around the ring"},
          {"payload", "bf16"},
          {"accumulate", "f32"},
          {"round_at", "after the sum"},
          {"op", "mean"},
          {"divide_at", "after"},
          {"configured", "ring"},
          {"fallback_reason", nullptr},
          {"source", "profiler"},
          {"notes", ""}};
}

Json File() {
  return {{"schema", "trivet.gradient-collectives.v1"},
          {"buckets", Json::array({Bucket(0, {"b", "a"}), Bucket(1, {"c"})})}};
}

Verdict Of(const Json& file) {
  const Gate gate = CheckGradients(file);
  return gate ? gate->verdict : Verdict::kPass;
}

TEST(Gradients, InOrderPass) { EXPECT_EQ(Of(File()), Verdict::kPass); }

TEST(Gradients, EveryFieldHasToBeThere) {
  for (const std::string& field : GradientFields()) {
    Json file = File();
    file["buckets"][1].erase(field);
    const Gate gate = CheckGradients(file);
    ASSERT_TRUE(gate) << field;
    EXPECT_EQ(gate->verdict, Verdict::kMissingProvenance) << field;
    EXPECT_THAT(gate->message, HasSubstr("bucket 1: \"" + field + "\""));
  }
}

TEST(Gradients, DefectsHaveTheirVerdicts) {
  const struct {
    const char* field;
    Json value;
    Verdict verdict;
  } cases[] = {{"source", "", Verdict::kMissingProvenance},
               {"kind", "none", Verdict::kMissingProvenance},
               {"actual", "none", Verdict::kMissingProvenance},
               {"ranks", {0U, 0U}, Verdict::kSchemaMismatch},
               {"notes", 5, Verdict::kSchemaMismatch},
               {"fallback_reason", 5, Verdict::kSchemaMismatch},
               {"bucket", 3, Verdict::kSchemaMismatch},
               {"parameters", {"b"}, Verdict::kSchemaMismatch},  // in bucket 0 as well
               {"parameters", Json::array(), Verdict::kSchemaMismatch},
               {"ranks", {-1}, Verdict::kSchemaMismatch},
               {"payload", 16, Verdict::kSchemaMismatch},
               {"kind", "all_reduce", Verdict::kSchemaMismatch},
               {"kind", "", Verdict::kSchemaMismatch},
               {"op", "average", Verdict::kSchemaMismatch},
               {"op", "", Verdict::kSchemaMismatch},
               {"divide_at", "later", Verdict::kSchemaMismatch},
               {"algorithm", "ring", Verdict::kSchemaMismatch},  // no field
               {"actual", "tree", Verdict::kSilentFallback}};
  for (const auto& one : cases) {
    Json file = File();
    file["buckets"][1][one.field] = one.value;
    EXPECT_EQ(Of(file), one.verdict) << one.field << DumpJson(one.value);
  }
  EXPECT_EQ(Of({{"schema", "other"}}), Verdict::kSchemaMismatch);
  EXPECT_EQ(Of(Json::array()), Verdict::kSchemaMismatch);
  Json version = File();
  version["schema"] = "trivet.gradient-collectives.v2";
  EXPECT_EQ(Of(version), Verdict::kSchemaMismatch);
  Json more = File();
  more["comment"] = "";
  EXPECT_EQ(Of(more), Verdict::kSchemaMismatch);
  EXPECT_THAT(CheckGradients(more)->message, HasSubstr("\"comment\""));
  Json empty = File();
  empty["buckets"] = Json::array();
  EXPECT_EQ(Of(empty), Verdict::kSchemaMismatch);
}

// What is absent is reported before a fallback is.
TEST(Gradients, CompletenessStandsBeforeFallbacks) {
  Json file = File();
  file["buckets"][0]["actual"] = "tree";
  file["buckets"][1].erase("source");
  EXPECT_EQ(Of(file), Verdict::kMissingProvenance);
}

TEST(Gradients, AFallbackWithAReasonIsARecord) {
  Json file = File();
  file["buckets"][1]["actual"] = "tree";
  file["buckets"][1]["fallback_reason"] = "the message is short";
  EXPECT_EQ(Of(file), Verdict::kPass);
}

TEST(Gradients, OneRankSumsNothing) {
  Json file = File();
  for (Json& bucket : file["buckets"]) bucket.update({{"kind", "none"}, {"ranks", {0U}}});
  EXPECT_EQ(Of(file), Verdict::kPass);
}

TEST(Gradients, HowItWasObservedMovesNoBit) {
  Json other = File();
  other["buckets"][0]["source"] = "the code that added";
  other["buckets"][0]["notes"] = "second reading";
  EXPECT_EQ(GradientFingerprint(other), GradientFingerprint(File()));
  EXPECT_TRUE(DescribeGradients(File(), other).empty());
  for (const char* field :
       {"parameters", "kind", "actual", "order", "payload", "accumulate", "round_at", "op", "divide_at"}) {
    Json moved = File();
    moved["buckets"][1][field] = "x";
    EXPECT_NE(GradientFingerprint(moved), GradientFingerprint(File())) << field;
    ASSERT_EQ(DescribeGradients(File(), moved).size(), 1U);
    EXPECT_EQ(DescribeGradients(File(), moved)[0].field, field);
  }
}

TEST(Gradients, AreDescribedAndRefusedOnlyWhenAsked) {
  Json other = File();
  other["buckets"][1]["accumulate"] = "bf16";
  other["buckets"].push_back(Bucket(2, {"d"}));
  const std::vector<NamedJson> files = {{"a", File()}, {"b", other}};
  const Report described = VerifyGradients(files, {});
  EXPECT_EQ(described.finding.verdict, Verdict::kPass);
  EXPECT_EQ(described.json["comparisons"][0]["differences"].size(), 2U);
  EXPECT_THAT(described.text, HasSubstr("sums differ in 2 fields"));
  EXPECT_THAT(described.text, HasSubstr("a: 2 buckets of gradients, fingerprint " + Hex(GradientFingerprint(File()))));
  EXPECT_EQ(described.json["files"][1]["buckets"], 3);
  EXPECT_EQ(described.json["files"][1]["fingerprint"], Hex(GradientFingerprint(other)));
  const Report same = VerifyGradients(files, {true});
  EXPECT_EQ(same.finding.verdict, Verdict::kReductionOrderMismatch);
  EXPECT_THAT(same.finding.message, HasSubstr("bucket 1: accumulate \"f32\" against \"bf16\""));
  EXPECT_EQ(VerifyGradients({files[0], files[0]}, {true}).finding.verdict, Verdict::kPass);
}

// The file that trainers check theirs with asks for what the reader asks for.
TEST(Gradients, TheSchemaNamesTheFields) {
  const Result<Json> schema = ReadJsonFile(SourceRoot() + "/docs/schemas/gradient-collectives.schema.json");
  ASSERT_TRUE(schema.ok());
  const Json& bucket = (*schema)["$defs"]["bucket"];
  EXPECT_EQ(bucket["required"].get<std::vector<std::string>>(), GradientFields());
  for (const std::string& field : GradientFields()) EXPECT_TRUE(bucket["properties"].contains(field)) << field;
  EXPECT_EQ((*schema)["properties"]["schema"]["const"], File()["schema"]);
  EXPECT_EQ((*schema)["additionalProperties"], false);
  EXPECT_EQ(bucket["additionalProperties"], false);
  EXPECT_EQ(bucket["properties"].size(), GradientFields().size());
  // Each word that it lists is taken, and nothing else where it lists words.
  for (const auto& [field, rule] : bucket["properties"].items()) {
    if (!rule.contains("enum")) continue;
    for (const Json& word : rule["enum"]) {
      Json file = File();
      file["buckets"][1].update({{field, word}, {"ranks", {0U}}});
      EXPECT_EQ(Of(file), Verdict::kPass) << field << " " << word;
    }
    Json file = File();
    file["buckets"][1][field] = "x";
    EXPECT_EQ(Of(file), Verdict::kSchemaMismatch) << field;
  }
  for (const char* field : {"kind", "op", "divide_at"}) EXPECT_TRUE(bucket["properties"][field].contains("enum"));
}

}  // namespace
}  // namespace trivet::proof
