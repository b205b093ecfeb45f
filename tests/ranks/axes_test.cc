// SPDX-License-Identifier: Apache-2.0
// Shares of sequences, pipeline stages and replicas change no bit: with every number of ranks that cut a layer, they
// give the logits of one rank, for the demo model and the small models of every family.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "engine/scoring.h"
#include "tests/support/model_runs.h"
#include "tests/support/paths.h"

namespace trivet {
namespace {

using engine::EngineOptions;
using engine::Launch;
using plan::SequenceSplit;

constexpr SequenceSplit kSplits[] = {SequenceSplit::kContiguous, SequenceSplit::kZigzag};

std::string DirOf(const std::string& name) { return name == "demo" ? DemoDir() : CaseDir(name); }

EngineOptions Options(int64_t ranks, int64_t stages, int64_t replicas, Launch launch = Launch::kThreads) {
  EngineOptions options;
  options.layout.ranks = ranks;
  options.layout.stages = stages;
  options.layout.replicas = replicas;
  options.launch = launch;
  return options;
}

// The same with sequences shared out over `context` ranks.
EngineOptions Shared(EngineOptions options, int64_t context, SequenceSplit split, int64_t stretch = 0) {
  options.layout.context = context;
  options.layout.context_split = split;
  options.layout.context_stretch = stretch;
  return options;
}

// The same with rows dealt to the ranks that cut a layer.
EngineOptions Dealt(EngineOptions options) {
  options.layout.sequence_parallel = true;
  return options;
}

class AxesIdentity : public testing::TestWithParam<const char*> {
 protected:
  AxesIdentity() : model_(support::Open(DirOf(GetParam()))) {
    const bool demo = GetParam() == std::string("demo");
    const std::string golden = DirOf(GetParam()) + (demo ? "/golden/demo-golden.safetensors" : "/golden.safetensors");
    set_ = {support::ReadGolden(golden)[0].tokens};
    for (const int64_t length : {1, 9, 66, 130}) {
      set_.push_back(support::RandomTokens(length, model_.geometry.vocab, static_cast<uint64_t>(length)));
    }
    Result<std::vector<float>> one = support::Logits(model_, {}, set_);
    CHECK_MSG(one.ok(), one.error().message);
    one_rank_ = std::move(one).value();
  }
  void TearDown() override {
    if (runs_ == 0) return;
    std::printf("%s: compared %lld logits in %d runs\n", GetParam(), static_cast<long long>(compared_), runs_);
  }

  int64_t layers() const { return static_cast<int64_t>(model_.geometry.layers.size()); }

  void ExpectEqual(const EngineOptions& options, size_t batch = 0) {
    const std::string what = fmt::format("{}: {} batch {}", GetParam(), support::Describe(options), batch);
    const Result<std::vector<float>> found = support::Logits(model_, options, set_, batch);
    ASSERT_TRUE(found.ok()) << what << ": " << found.error().message;
    EXPECT_EQ(support::FirstDifference(one_rank_, *found, model_.geometry.vocab), "") << what;
    compared_ += static_cast<int64_t>(found->size());
    ++runs_;
  }

  const engine::OpenedModel model_;
  support::TokenSet set_;
  std::vector<float> one_rank_;
  int64_t compared_ = 0;
  int runs_ = 0;
};

TEST_P(AxesIdentity, StagesReplicasAndRanks) {
  for (int64_t ranks = 1; ranks <= 3; ++ranks) {
    for (int64_t stages = 1; stages <= 3; ++stages) {
      for (const int64_t replicas : {1, 2}) {
        if (ranks * stages * replicas <= plan::kMaxRanks) ExpectEqual(Options(ranks, stages, replicas));
      }
    }
  }
}

TEST_P(AxesIdentity, AsProcesses) {
  ExpectEqual(Options(3, 3, 1, Launch::kProcesses));
  ExpectEqual(Options(3, 2, 2, Launch::kProcesses));
  ExpectEqual(Options(1, 3, 3, Launch::kProcesses));
}

TEST_P(AxesIdentity, StagesOfAnyLayers) {
  EngineOptions options = Options(1, 2, 1);
  for (int64_t first = 1; first < layers(); ++first) {
    options.layout.stage_layers = {first, layers() - first};
    ExpectEqual(options);
  }
  options = Options(2, 3, 1);
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{1, 1, layers() - 2}, {1, layers() - 2, 1}}) {
    options.layout.stage_layers = counts;
    ExpectEqual(options);
  }
  // As many stages as layers, up to the most ranks.
  ExpectEqual(Options(1, std::min<int64_t>(layers(), plan::kMaxRanks), 1));
}

TEST_P(AxesIdentity, ChunksBatchesAndExpertGroups) {
  for (const int64_t chunk : {1, 7, 64}) {
    EngineOptions options = Options(2, 2, 2);
    options.prefill_chunk = chunk;
    ExpectEqual(options, 1);
    ExpectEqual(options);
  }
  if (model_.geometry.moe.experts == 0) return;
  EngineOptions options = Options(3, 2, 2);
  options.layout.ep = 2;
  ExpectEqual(options);
}

TEST_P(AxesIdentity, SharesOfSequences) {
  for (const SequenceSplit split : kSplits) {
    for (const int64_t context : {2, 3}) {
      for (int64_t ranks = 1; ranks <= 3; ++ranks) ExpectEqual(Shared(Options(ranks, 1, 1), context, split));
    }
  }
}

// Stretches that their ranks have unequal parts of, and in which the last of three has nothing (2 and 4 positions).
TEST_P(AxesIdentity, UnevenSharesOfSequences) {
  for (const SequenceSplit split : kSplits) {
    for (const int64_t stretch : {1, 2, 4, 5, 7, 130}) ExpectEqual(Shared(Options(1, 1, 1), 3, split, stretch));
  }
}

TEST_P(AxesIdentity, SharesStagesReplicasAndExpertGroups) {
  for (const SequenceSplit split : kSplits) {
    ExpectEqual(Shared(Options(2, 2, 2), 2, split, 12));
    ExpectEqual(Shared(Options(1, 2, 2, Launch::kProcesses), 3, split, 12));
    ExpectEqual(Shared(Options(3, 1, 1, Launch::kProcesses), 3, split, 12));
  }
  if (model_.geometry.moe.experts == 0) return;
  EngineOptions options = Shared(Options(3, 1, 2), 2, SequenceSplit::kZigzag, 12);
  options.layout.ep = 2;
  ExpectEqual(options);
}

// Chunks of one token are what decoding does; steps whose tokens are all of one share leave the others without rows.
TEST_P(AxesIdentity, SharesOfChunksAndBatches) {
  for (const int64_t chunk : {1, 7, 64, 512}) {
    for (const size_t batch : {size_t{1}, size_t{0}}) {
      EngineOptions options = Shared(Options(1, 1, 1), 3, SequenceSplit::kZigzag, 26);
      options.prefill_chunk = chunk;
      ExpectEqual(options, batch);
    }
  }
  EngineOptions options = Shared(Options(2, 1, 1), 2, SequenceSplit::kContiguous, 10);
  options.kernels.contract = kernels::Contract::kPortable;
  ExpectEqual(options);
}

TEST_P(AxesIdentity, SharesOfManySequences) {
  for (uint64_t i = 0; set_.size() < 16; ++i) {
    set_.push_back(support::RandomTokens(static_cast<int64_t>(3 + 5 * i), model_.geometry.vocab, 40 + i));
  }
  one_rank_ = support::Logits(model_, {}, set_).value();
  for (const size_t batch : {size_t{7}, size_t{16}}) {
    ExpectEqual(Shared(Options(1, 1, 1), 2, SequenceSplit::kContiguous, 9), batch);
    ExpectEqual(Shared(Options(2, 1, 1), 3, SequenceSplit::kZigzag, 18), batch);
  }
}

// The stream is shared out over the ranks that cut a layer; 16 ranks of 64 positions have 4 each.
TEST_P(AxesIdentity, RowsThatAreDealt) {
  for (const int64_t ranks : {1, 2, 3, 5}) ExpectEqual(Dealt(Options(ranks, 1, 1)));
  ExpectEqual(Dealt(Options(3, 1, 1, Launch::kProcesses)));
  ExpectEqual(Dealt(Options(2, 3, 1)));
  ExpectEqual(Dealt(Options(3, 2, 2, Launch::kProcesses)));
  for (const int64_t stretch : {1, 2, 7}) {  // some ranks have no rows
    EngineOptions options = Dealt(Options(3, 1, 1));
    options.layout.context_stretch = stretch;
    ExpectEqual(options);
  }
  EngineOptions options = Dealt(Options(2, 1, 1));
  options.kernels.contract = kernels::Contract::kPortable;
  ExpectEqual(options);
}

TEST_P(AxesIdentity, RowsThatAreDealtOfShares) {
  for (const SequenceSplit split : kSplits) {
    for (const int64_t ranks : {2, 3}) ExpectEqual(Dealt(Shared(Options(ranks, 1, 1), 2, split, 12)));
    ExpectEqual(Dealt(Shared(Options(2, 2, 2), 2, split, 12)));
    ExpectEqual(Dealt(Shared(Options(2, 2, 1, Launch::kProcesses), 3, split, 26)));
  }
  if (model_.geometry.moe.experts == 0) return;
  for (const int64_t ep : {1, 2, 3}) {
    EngineOptions options = Dealt(Shared(Options(3, 1, 2), 2, SequenceSplit::kZigzag, 12));
    options.layout.ep = ep;
    ExpectEqual(options);
  }
}

// Whole axes on every rank: of what nobody adds up, every rank takes its own rows.
TEST_P(AxesIdentity, RowsThatAreDealtOfReplicatedAxes) {
  EngineOptions options = Dealt(Options(3, 1, 1));
  const plan::Layout layout = plan::MakeLayout(model_.geometry, options.layout).value();
  for (const plan::AxisPlan& axis : layout.axes) options.layout.cuts[axis.axis] = "replicate";
  ExpectEqual(options);
}

TEST_P(AxesIdentity, RowsThatAreDealtOfChunksAndBatches) {
  for (const int64_t chunk : {1, 7, 64, 512}) {
    for (const size_t batch : {size_t{1}, size_t{0}}) {
      EngineOptions options = Dealt(Shared(Options(3, 1, 1), 1, SequenceSplit::kContiguous, 10));
      options.prefill_chunk = chunk;
      ExpectEqual(options, batch);
    }
  }
}

// Hidden states come together from the stages and shares.
TEST_P(AxesIdentity, HiddenStatesOfAllLayers) {
  std::vector<std::vector<engine::ScoredSequence>> scored;
  for (const EngineOptions& options :
       {Options(1, 1, 1), Options(2, 3, 2), Shared(Options(1, 3, 2), 2, SequenceSplit::kZigzag, 12),
        Dealt(Shared(Options(2, 3, 1), 2, SequenceSplit::kZigzag, 12)), Dealt(Options(3, 1, 1))}) {
    const auto engine = engine::Engine::Start(model_, options, {});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    auto one = engine::Score(engine->get(), {set_, false, true});
    ASSERT_TRUE(one.ok()) << one.error().message;
    scored.push_back(std::move(one).value());
  }
  for (size_t other = 1; other < scored.size(); ++other) {
    for (size_t i = 0; i < set_.size(); ++i) {
      const auto &one = scored[0][i].hidden, &two = scored[other][i].hidden;
      ASSERT_EQ(two.size(), static_cast<size_t>(layers()));
      for (size_t layer = 0; layer < two.size(); ++layer) {
        EXPECT_EQ(support::FirstDifference(one[layer], two[layer], model_.geometry.hidden), "")
            << "layout " << other << " sequence " << i << " layer " << layer;
      }
    }
  }
}

// Else the comparisons above would prove nothing: a rank has the weights, pages and states of its stage alone.
TEST_P(AxesIdentity, AStageHoldsItsLayersAlone) {
  const auto one = engine::Engine::Start(model_, Options(1, 1, 1), {});
  EngineOptions options = Options(1, 3, 2);
  options.kv_tokens = (*one)->memory().kv_tokens;
  const auto engine = engine::Engine::Start(model_, options, {});
  ASSERT_TRUE(one.ok() && engine.ok());
  const plan::RankMemory whole = (*one)->memory().ranks[0];
  const std::vector<plan::RankMemory>& ranks = (*engine)->memory().ranks;
  ASSERT_EQ(ranks.size(), 6U);
  int64_t weights = 0, kv = 0, states = 0;
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_LT(ranks[r].weights, whole.weights);
    EXPECT_EQ(ranks[r].weights, ranks[r + 3].weights);
    EXPECT_EQ(ranks[r].kv, ranks[r + 3].kv);
    weights += ranks[r].weights;
    kv += ranks[r].kv;
    states += ranks[r].states;
  }
  EXPECT_EQ(kv, whole.kv);
  EXPECT_EQ(states, whole.states);
  // What was loaded is what was planned; the first stage and, where the head is tied, the last one have the embedding.
  EXPECT_LT((*engine)->times().weight_bytes, (*one)->times().weight_bytes);
  if (model_.geometry.tied_head) {
    EXPECT_GT(weights, whole.weights);
  } else {
    EXPECT_NEAR(static_cast<double>(weights), static_cast<double>(whole.weights), 2);  // rounded for each
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AxesIdentity,
                         testing::Values("demo", "llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_moe",
                                         "gemma3", "gpt_oss", "deepseek_v3", "llama-mxfp4", "qwen3-fp8", "qwen3_5-fp8",
                                         "qwen3_5-mxfp4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// What is kept in codes are the same rows on all ranks.
TEST(SharesOfSequences, KeepTheSameCodes) {
  const engine::OpenedModel model = support::Open(DemoDir());
  const support::TokenSet set = {support::RandomTokens(90, model.geometry.vocab, 3)};
  EngineOptions options = Options(1, 1, 1);
  options.kv_dtype = cache::KvDtype::kE4M3;
  const std::vector<float> one = support::Logits(model, options, set).value();
  const std::vector<float> shared = support::Logits(model, Shared(options, 3, SequenceSplit::kZigzag, 20), set).value();
  EXPECT_EQ(support::FirstDifference(one, shared, model.geometry.vocab), "");
}

// Floats are added in the order of ranks, whoever needs the sum.
TEST(DealtRows, HaveTheSameBitsInFastMode) {
  const engine::OpenedModel model = support::Open(DemoDir());
  const support::TokenSet set = {support::RandomTokens(90, model.geometry.vocab, 3)};
  EngineOptions options = Options(3, 1, 1);
  options.numerics = kernels::Numerics::kFast;
  const std::vector<float> whole = support::Logits(model, options, set).value();
  const std::vector<float> dealt = support::Logits(model, Dealt(options), set).value();
  EXPECT_EQ(support::FirstDifference(whole, dealt, model.geometry.vocab), "");
}

// Requests go to the replica with the fewest, so that those of a batch take turns; ends make room.
TEST(Replicas, RequestsTakeTurnsAndEndsMakeRoom) {
  const engine::OpenedModel model = support::Open(DemoDir());
  EngineOptions options = Options(1, 1, 2);
  options.max_sequences = 1;  // so that the second sequence of a replica waits for the first one
  const auto engine = engine::Engine::Start(model, options, {});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const auto submit = [&](int64_t id) {
    sched::Request request;
    request.id = SeqId{id};
    request.prompt = {1, 2, 3};
    request.max_new_tokens = 100;
    ASSERT_TRUE((*engine)->Submit(std::move(request)).ok());
  };
  const auto step = [&] {
    const Result<bool> stepped = (*engine)->Step([](const sched::Span&, const engine::SpanOutput&, bool wanted) {
      return Result<std::optional<TokenId>>(wanted ? std::optional<TokenId>(7) : std::nullopt);
    });
    ASSERT_TRUE(stepped.ok() && *stepped);
  };
  for (const int64_t id : {0, 1, 2}) submit(id);
  step();
  EXPECT_TRUE((*engine)->Begun(SeqId{0}) && (*engine)->Begun(SeqId{1}));
  EXPECT_FALSE((*engine)->Begun(SeqId{2})) << "of the replica that runs request 0";
  EXPECT_EQ((*engine)->counts().running, 2);
  EXPECT_EQ((*engine)->step_tokens(), 6);
  (*engine)->Finish(SeqId{1});
  submit(3);
  step();
  EXPECT_TRUE((*engine)->Begun(SeqId{3})) << "of the replica that has become free";
  EXPECT_FALSE((*engine)->Submit({SeqId{2}, {1}}).ok()) << "an id in use, of whatever replica";
}

}  // namespace
}  // namespace trivet
