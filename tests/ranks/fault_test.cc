// SPDX-License-Identifier: Apache-2.0
// Planted faults: each mistake that a layout can hide changes a digest, and the first one names the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "record/sites.h"
#include "tests/support/model_runs.h"

namespace trivet {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// What a run with --sites leaves.
struct Digests {
  std::vector<record::SiteDigest> sites;
  std::string error;  // of scoring
};

Digests DigestsOf(const std::string& fault, kernels::Numerics numerics,
                  engine::Launch launch = engine::Launch::kThreads, int64_t tokens = 20) {
  const engine::OpenedModel model = support::Open(support::DemoDir(TRIVET_ROOT));
  engine::EngineOptions options;
  options.layout.ranks = 3;
  options.launch = launch;
  options.numerics = numerics;
  options.sites = true;
  if (!fault.empty()) {
    const Result<comm::Fault> parsed = comm::ParseFault(fault);
    CHECK_MSG(parsed.ok(), parsed.error().message);
    options.fault = *parsed;
  }
  auto engine = engine::Engine::Start(model, options, {});
  CHECK_MSG(engine.ok(), engine.error().message);
  const auto scored =
      engine::Score(engine->get(), {{support::RandomTokens(tokens, model.geometry.vocab, 5)}, true, false});
  return {(*engine)->sites().digests(), scored.ok() ? "" : scored.error().message};
}

// The first difference to a run without a fault.
std::optional<std::string> Caught(const std::string& fault, kernels::Numerics numerics) {
  const Digests clean = DigestsOf("", numerics);
  EXPECT_EQ(clean.error, "");
  return record::FirstDifference(clean.sites, DigestsOf(fault, numerics).sites);
}

TEST(Fault, WithoutOneTwoRunsAreEqual) {
  for (const auto numerics : {kernels::Numerics::kExact, kernels::Numerics::kFast}) {
    const Digests a = DigestsOf("", numerics), b = DigestsOf("", numerics, engine::Launch::kProcesses);
    EXPECT_EQ(a.error, "");
    EXPECT_EQ(b.error, "");
    EXPECT_FALSE(a.sites.empty());
    EXPECT_EQ(record::FirstDifference(a.sites, b.sites), std::nullopt);
  }
}

// A step of the demo has 16 reduced sites: in every layer the mixer (gdn, gdn, gdn, attn, ...) and the experts.
struct Planted {
  const char* fault;
  const char* site;
};

class SumFault : public testing::TestWithParam<Planted> {};

TEST_P(SumFault, IsNamedInBothModes) {
  for (const auto numerics : {kernels::Numerics::kExact, kernels::Numerics::kFast}) {
    const std::optional<std::string> caught = Caught(GetParam().fault, numerics);
    ASSERT_TRUE(caught.has_value());
    EXPECT_THAT(*caught, StartsWith(std::string(GetParam().site) + ": digest "));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SumFault,
                         testing::Values(Planted{"partial-bf16:rank=1:site=4", "layer 2 gdn"},
                                         Planted{"partial-bf16:rank=0:site=0", "layer 0 gdn"},
                                         Planted{"partial-bf16:rank=2:site=15", "layer 7 moe"},
                                         Planted{"local-scale:rank=1:site=6", "layer 3 attn"},
                                         Planted{"local-scale:rank=2:site=1", "layer 0 moe"},
                                         // Leaves are cut when weights are loaded, so the first product shows it.
                                         Planted{"split-k:rank=1", "layer 0 gdn"},
                                         Planted{"split-k:rank=0", "layer 0 gdn"}));

TEST(Fault, RankOrderCannotMatterToIntegers) {
  for (const char* fault : {"rank-order:rank=1", "rank-order:rank=2"}) {
    EXPECT_EQ(Caught(fault, kernels::Numerics::kExact), std::nullopt) << fault;
    EXPECT_EQ(DigestsOf(fault, kernels::Numerics::kExact).error, "") << fault;
  }
}

// Few tokens: every rank adds for itself, so the faulty one disagrees with the others at once.
TEST(Fault, RankOrderInFastModeIsADisagreementOfRanks) {
  for (const auto launch : {engine::Launch::kThreads, engine::Launch::kProcesses}) {
    for (const int64_t rank : {1, 2}) {
      const Digests found = DigestsOf("rank-order:rank=" + std::to_string(rank), kernels::Numerics::kFast, launch);
      EXPECT_THAT(found.error, HasSubstr("rank " + std::to_string(rank)));
      EXPECT_THAT(found.error, HasSubstr("layer 0 gdn"));
    }
  }
}

// Many tokens: the faulty rank adds a share for everybody, so all agree, on other bits than without the fault.
TEST(Fault, RankOrderInFastModeShowsInSharedSums) {
  const Digests clean = DigestsOf("", kernels::Numerics::kFast, engine::Launch::kThreads, 200);
  const Digests found = DigestsOf("rank-order:rank=1", kernels::Numerics::kFast, engine::Launch::kThreads, 200);
  EXPECT_EQ(clean.error, "");
  EXPECT_EQ(found.error, "");
  const std::optional<std::string> difference = record::FirstDifference(clean.sites, found.sites);
  ASSERT_TRUE(difference.has_value());
  EXPECT_THAT(*difference, StartsWith("layer 0 gdn: digest "));
}

}  // namespace
}  // namespace trivet
