// SPDX-License-Identifier: Apache-2.0
#include "engine/routes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"
#include "engine/scoring.h"
#include "proof/rank_files.h"
#include "proof/synthetic.h"
#include "proof/verify.h"
#include "tests/engine/small_model.h"
#include "tests/io/temp_dir.h"
#include "tests/support/paths.h"

namespace trivet::engine {
namespace {

template <class T>
std::vector<T> Read(const checkpoint::Checkpoint& file, const std::string& name) {
  const checkpoint::TensorInfo* info = file.Find(name);
  CHECK_MSG(info != nullptr, name);
  std::vector<T> values(static_cast<size_t>(info->bytes) / sizeof(T));
  CHECK(file.Read(*info, 0, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

TEST(ExportRoutes, HasTheDecisionsOfEveryToken) {
  const TempDir dir;
  proof::SyntheticOptions options;
  options.sizes = {2, 2, 1, 2, 1};  // decisions of one token are on several ranks
  ASSERT_TRUE(ExportRoutes(proof::EncodeRun(proof::MakeSynthetic(options)), "run", dir.Path("r.safetensors")).ok());
  std::vector<std::string> notices;
  const auto file = checkpoint::Checkpoint::Open(dir.Path("r.safetensors"), &notices);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->Find("experts.1")->shape, (std::vector<int64_t>{5, 4, 2}));
  const auto experts = Read<int32_t>(*file, "experts.1");
  const auto weights = Read<float>(*file, "weights.1");
  const auto tokens = Read<int32_t>(*file, "tokens.1");
  for (int64_t position = 0; position < 5; ++position) {
    for (int64_t layer = 0; layer < 4; ++layer) {
      std::vector<record::RouteSlot> slots;
      const record::RouteHead head = proof::SyntheticRoute({layer, record::GlobalToken(1, position)}, &slots);
      EXPECT_EQ(tokens[static_cast<size_t>(position)], head.input);
      for (size_t slot = 0; slot < 2; ++slot) {
        const size_t at = static_cast<size_t>(position * 4 + layer) * 2 + slot;
        EXPECT_EQ(experts[at], slots[slot].expert);
        EXPECT_EQ(weights[at], slots[slot].weight);
      }
    }
  }
}

TEST(ExportRoutes, NeedsARunWithDecisions) {
  const TempDir dir;
  proof::SyntheticOptions options;
  options.level = record::Level::kDigest;
  proof::Files files = proof::EncodeRun(proof::MakeSynthetic(options));
  EXPECT_EQ(ExportRoutes(files, "run", dir.Path("r")).error().code, Code::kUnsupported);
  files.erase("seal.json");
  EXPECT_EQ(ExportRoutes(files, "run", dir.Path("r")).error().code, Code::kInvalid);
}

// Runs of one model that record, export and force.
class Forced : public testing::Test {
 protected:
  // What one run left.
  struct Outcome {
    proof::NamedFiles files;
    std::vector<float> logits;
    std::optional<model::ForcedCounts> forced;
  };

  Result<Outcome> Run(int64_t ranks, const std::string& routes) {
    plan::LayoutOptions layout;
    layout.ranks = ranks;
    return RunLayout(layout, routes);
  }
  Result<Outcome> RunLayout(const plan::LayoutOptions& layout, const std::string& routes,
                            Launch launch = Launch::kThreads) {
    EngineOptions options;
    options.layout = layout;
    options.launch = launch;
    options.prefill_chunk = 3;
    options.routes = routes;
    options.proof.level = record::Level::kRows;
    options.proof.dir = small_.dir().Path("run" + std::to_string(runs_++));
    options.proof.command = "test";
    TRY_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Start(small_.model(), options, {}));
    TRY_ASSIGN(const std::vector<ScoredSequence> scored, Score(engine.get(), {tokens_, false, false}));
    TRY(engine->SealProof());
    Outcome outcome{{options.proof.dir, proof::ReadRunDir(options.proof.dir).value()}, {}, engine->forced()};
    for (const ScoredSequence& one : scored) {
      outcome.logits.insert(outcome.logits.end(), one.logits.begin(), one.logits.end());
    }
    return outcome;
  }

  std::string Export(const Outcome& outcome) {
    const std::string path = small_.dir().Path("routes" + std::to_string(runs_++));
    CHECK(ExportRoutes(outcome.files.files, "run", path).ok());
    return path;
  }

  // A file of request 0 alone, as a trainer writes it.
  std::string Write(const std::vector<int32_t>& tokens, const std::vector<int32_t>& experts, const std::string& layers,
                    const std::string& config = "") {
    const std::string path = small_.dir().Path("routes" + std::to_string(runs_++));
    checkpoint::SafetensorsWriter::Metadata metadata = {{"layers", layers}};
    if (!config.empty()) metadata.emplace_back("config", config);
    const auto count = static_cast<int64_t>(tokens.size());
    const std::vector<checkpoint::TensorDecl> decls = {
        {"tokens.0", tensor::DType::kI32, {count}},
        {"experts.0", tensor::DType::kI32, {count, static_cast<int64_t>(experts.size()) / count / 2, 2}}};
    auto writer = checkpoint::SafetensorsWriter::Create(path, decls, metadata);
    CHECK(writer.ok() && writer->Append(std::as_bytes(std::span(tokens))).ok());
    CHECK(writer->Append(std::as_bytes(std::span(experts))).ok() && writer->Finish().ok());
    return path;
  }

  // A file of these tensors, all zeros, whatever sense they make.
  std::string WriteZeros(const std::vector<checkpoint::TensorDecl>& decls) {
    const std::string path = small_.dir().Path("routes" + std::to_string(runs_++));
    auto writer = checkpoint::SafetensorsWriter::Create(path, decls, {{"layers", "0,1,2,3"}});
    CHECK_MSG(writer.ok(), writer.error().message);
    const std::vector<std::byte> zeros(static_cast<size_t>(writer->remaining_bytes()));
    CHECK(writer->Append(zeros).ok() && writer->Finish().ok());
    return path;
  }

  void Refused(const std::string& path, const std::string& word) {
    const auto read = ReadRoutes(path, small_.model(), Backend::kCpu);
    ASSERT_FALSE(read.ok()) << word;
    EXPECT_THAT(read.error().message, testing::AllOf(testing::HasSubstr(path), testing::HasSubstr(word)));
  }

  const SmallModel small_;
  const std::vector<std::vector<TokenId>> tokens_ = {support::RandomTokens(9, small_.vocab(), 1),
                                                     support::RandomTokens(5, small_.vocab(), 2)};
  int runs_ = 0;
};

TEST_F(Forced, TheOwnRoutesChangeNoByte) {
  const Outcome free = Run(1, "").value();
  EXPECT_FALSE(free.forced);
  for (const int64_t ranks : {1, 3}) {
    const Result<Outcome> forced = Run(ranks, Export(free));
    ASSERT_TRUE(forced.ok()) << forced.error().message;
    EXPECT_EQ(forced->logits, free.logits);
    EXPECT_EQ(forced->forced->decisions, 14 * 4);
    EXPECT_EQ(forced->forced->other, 0);
    const proof::Report report = proof::Verify({free.files, forced->files}, {});
    EXPECT_EQ(report.finding.verdict, proof::Verdict::kPass) << report.finding.message;
    EXPECT_EQ(report.json["runs"][1]["routes"]["forced"], 14 * 4) << "and the report says what the routes came from";
    EXPECT_THAT(report.text, testing::HasSubstr("56 decisions forced"));
  }
}

TEST_F(Forced, OtherRoutesChangeTheirDecisionsAlone) {
  const Outcome free = Run(1, "").value();
  // In layer 2, the token at position 4 goes where it would not.
  std::vector<int32_t> experts(9 * 4 * 2, -1);
  const auto own = [&] {
    proof::RecordedRun run;
    CHECK(!proof::CheckRun(free.files.files, &run));
    const proof::Routes& routes = run.ranks[0].routes;
    for (size_t i = 0; i < routes.heads.size(); ++i) {
      if (routes.heads[i].layer == 2 && routes.heads[i].token == record::GlobalToken(0, 4))
        return routes.Slots(i)[0].expert;
    }
    CHECK(false);
    return uint16_t{0};
  }();
  const size_t row = (4 * 4 + 2) * 2;
  experts[row] = own == 7 ? 6 : 7;
  experts[row + 1] = own == 0 ? 1 : 0;
  const std::string path = Write({tokens_[0].begin(), tokens_[0].end()}, experts, "0,1,2,3");
  const Result<Outcome> forced = Run(3, path);
  ASSERT_TRUE(forced.ok()) << forced.error().message;
  EXPECT_EQ(forced->forced->decisions, 1);
  EXPECT_EQ(forced->forced->other, 1);
  EXPECT_EQ(proof::Verify({forced->files}, {}).finding.verdict, proof::Verdict::kPass) << "it stands by itself";
  const proof::Report report = proof::Verify({free.files, forced->files}, {});
  EXPECT_EQ(report.finding.verdict, proof::Verdict::kRouteSemanticFingerprintMismatch);
  EXPECT_THAT(report.finding.message, testing::StartsWith("layer 2 route, request 0, position 4"));
  // The same under another layout is the same.
  const Outcome again = Run(1, path).value();
  EXPECT_EQ(again.logits, forced->logits);
  EXPECT_EQ(proof::Verify({again.files, forced->files}, {}).finding.verdict, proof::Verdict::kPass);
}

// Every stage forces the decisions of its layers, every share those of its positions, every replica those of its
// requests, and rank 0 knows of all.
TEST_F(Forced, StagesSharesAndReplicasForceTheSame) {
  const Outcome free = Run(1, "").value();
  const std::string own = Export(free);
  // Every decision of the first request goes where it mostly would not.
  std::vector<int32_t> experts;
  for (int32_t i = 0; i < 9 * 4; ++i) experts.insert(experts.end(), {i % 8, (i + 3) % 8});
  const std::string path = Write({tokens_[0].begin(), tokens_[0].end()}, experts, "0,1,2,3");
  const Outcome one = Run(1, path).value();
  ASSERT_EQ(one.forced->decisions, 9 * 4);
  ASSERT_GT(one.forced->other, 9 * 2);
  const struct {
    int64_t ranks, stages, replicas;
    Launch launch;
    int64_t context = 1;
  } layouts[] = {{1, 2, 1, Launch::kThreads},   {1, 1, 2, Launch::kThreads}, {3, 2, 1, Launch::kProcesses},
                 {2, 1, 2, Launch::kProcesses}, {2, 2, 2, Launch::kThreads}, {1, 4, 3, Launch::kProcesses},
                 {2, 2, 1, Launch::kThreads, 3}};
  for (const auto& layout : layouts) {
    plan::LayoutOptions options;
    options.ranks = layout.ranks;
    options.stages = layout.stages;
    options.replicas = layout.replicas;
    options.context = layout.context;
    options.context_stretch = 5;
    const std::string what =
        fmt::format("tp {} cp {} pp {} dp {}", layout.ranks, layout.context, layout.stages, layout.replicas);
    const Result<Outcome> same = RunLayout(options, own, layout.launch);
    ASSERT_TRUE(same.ok()) << what << ": " << same.error().message;
    EXPECT_EQ(same->logits, free.logits) << what;
    EXPECT_EQ(same->forced->decisions, 14 * 4) << what;
    EXPECT_EQ(same->forced->other, 0) << what;
    const Result<Outcome> other = RunLayout(options, path, layout.launch);
    ASSERT_TRUE(other.ok()) << what << ": " << other.error().message;
    EXPECT_EQ(other->logits, one.logits) << what;
    EXPECT_EQ(other->forced->decisions, one.forced->decisions) << what;
    EXPECT_EQ(other->forced->other, one.forced->other) << what;
    const proof::Report report = proof::Verify({one.files, other->files}, {});
    EXPECT_EQ(report.finding.verdict, proof::Verdict::kPass) << what << ": " << report.finding.message;
    EXPECT_EQ(report.json["runs"][1]["routes"]["other"], one.forced->other) << what;
  }
}

TEST_F(Forced, ADecisionThatNobodyOwnsUpToIsRefused) {
  const Outcome free = Run(1, "").value();
  proof::RecordedRun run;
  ASSERT_FALSE(proof::CheckRun(Run(1, Export(free))->files.files, &run));
  run.run.erase("routes");
  EXPECT_EQ(proof::CheckRouter(run)->verdict, proof::Verdict::kInvalidDiscretePlan);
}

TEST_F(Forced, OtherTokensAreRefused) {
  std::vector<int32_t> tokens(tokens_[0].begin(), tokens_[0].end());
  tokens[6] = (tokens[6] + 1) % static_cast<int32_t>(small_.vocab());
  const Result<Outcome> forced = Run(1, Write(tokens, std::vector<int32_t>(9 * 4 * 2, -1), "0,1,2,3"));
  ASSERT_FALSE(forced.ok());
  EXPECT_EQ(forced.error().code, Code::kInvalid);
  EXPECT_THAT(forced.error().message, testing::HasSubstr("request 0, position 6"));
}

TEST_F(Forced, AnotherModelsFileIsRefusedByWhatDiffers) {
  const std::vector<int32_t> free(8, -1), tokens = {1};
  Refused(Write(tokens, free, "0,1,2"), "layers");
  Refused(Write(tokens, free, "0,1,2,3", "0123"), "config");
  Refused(Write(tokens, {-1, -1, -1, -1}, "0,1,2,3"), "experts.0");
  Refused(Write(tokens, {0, 1, 2, 3, 4, 5, 6, 8}, "0,1,2,3"), "position 0, layer 3");
  Refused(Write(tokens, {0, 1, 2, 2, 4, 5, 6, 7}, "0,1,2,3"), "position 0, layer 1");
  Refused(Write(tokens, {0, -1, 2, 3, 4, 5, 6, 7}, "0,1,2,3"), "position 0, layer 0");
  Refused(Write({100000}, free, "0,1,2,3"), "tokens.0");
  Refused(small_.dir().Path("none"), "none");
  using tensor::DType;
  Refused(WriteZeros({}), "of a request R, found none");
  Refused(WriteZeros({{"tokens.0", DType::kI32, {2}}}), "found one of them");
  Refused(WriteZeros({{"experts.0", DType::kI32, {2, 4, 2}}}), "found one of them");
  for (const char* name : {"routes.0", "tokens", "tokens.", "tokens.x", "tokens.-1", "tokens.3000000000"}) {
    Refused(WriteZeros({{name, DType::kI32, {2}}}), name);
  }
  Refused(WriteZeros({{"tokens.0", DType::kF32, {2}}}), "tokens.0 of int32 [T]");
  Refused(WriteZeros({{"tokens.0", DType::kI32, {2, 1}}}), "tokens.0 of int32 [T]");
  Refused(WriteZeros({{"tokens.0", DType::kI32, {0}}}), "tokens.0 of int32 [T]");
  Refused(WriteZeros({{"experts.0", DType::kI32, {2, 3, 2}}}), "experts.0 of int32 [T, 4, 2]");
  Refused(WriteZeros({{"tokens.0", DType::kI32, {2}}, {"experts.0", DType::kI32, {1, 4, 2}}}), "as many tokens");
  const OpenedModel dense = support::Open(CaseDir("llama"));
  EXPECT_EQ(ReadRoutes(Write(tokens, free, "0,1,2,3"), dense, Backend::kCpu).error().code, Code::kUnsupported);
  EXPECT_TRUE(
      ReadRoutes(Write(tokens, free, "0,1,2,3", ConfigDigest(small_.model())), small_.model(), Backend::kCpu).ok());
  EXPECT_EQ(ReadRoutes(Write(tokens, free, "0,1,2,3"), small_.model(), Backend::kCuda).error().code,
            Code::kUnsupported);
}

}  // namespace
}  // namespace trivet::engine
