// SPDX-License-Identifier: Apache-2.0
#include "engine/rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/small_model.h"
#include "tests/engine/step_plans.h"

namespace trivet::engine {
namespace {

RankOptions SmallOptions() {
  RankOptions options;
  options.limits = {2, 16, 16, 16, 4, 64};
  options.proof.level = record::Level::kDigest;
  return options;
}

// Two ranks of one model on two threads, without an engine around them.
class TwoRanks : public testing::Test {
 protected:
  TwoRanks() {
    plan::LayoutOptions layout;
    layout.ranks = 2;
    layout_ = plan::MakeLayout(small_.model().geometry, layout).value();
    group_ = std::move(comm::Group::Make({.ranks = 2})).value();
    stage_ = group_->MakePart({0, 1}).value();
    for (const int64_t rank : {0, 1}) contexts_.push_back(group_->MakePart({rank}).value());
  }

  RankComms Comms(int64_t rank, const comm::Fault& fault = {}) const {
    return {comm::Communicator(group_.get(), rank, fault), comm::Communicator(stage_, rank, fault),
            comm::Communicator(contexts_[static_cast<size_t>(rank)], 0, fault)};
  }

  std::unique_ptr<RankWorker> Worker(int64_t rank, const RankOptions& options) {
    auto worker = RankWorker::Make(small_.model(), layout_, options, Comms(rank, options.fault), {});
    CHECK_MSG(worker.ok(), worker.error().message);
    return std::move(worker).value();
  }

  const SmallModel small_;
  plan::Layout layout_;
  std::unique_ptr<comm::Group> group_;
  comm::Group* stage_ = nullptr;
  std::vector<comm::Group*> contexts_;  // of every rank, alone
};

TEST_F(TwoRanks, ServeRunsWhatIsAnnounced) {
  const auto first = Worker(0, SmallOptions()), second = Worker(1, SmallOptions());
  Status served = MakeError(Code::kPeer, "not yet");
  std::thread thread([&] { served = second->Serve(); });
  std::vector<float> logits(static_cast<size_t>(small_.vocab()));
  const JointStep step{{ThreeTokens()}};
  const std::vector<model::StepOutput> outputs = {{logits, {}}};
  ASSERT_TRUE(first->Announce(&step).ok());
  EXPECT_TRUE(first->RunStep(step, outputs).ok());
  EXPECT_TRUE(first->Announce(nullptr).ok());
  thread.join();
  EXPECT_TRUE(served.ok());
  // Of three tokens the embedding, and in every layer two sites and the router's; of one the final norm, and on rank 0
  // the logits.
  const size_t layers = small_.model().geometry.layers.size();
  EXPECT_EQ(first->log()->bounds().size(), 3 * (1 + 3 * layers) + 2);
  EXPECT_EQ(second->log()->bounds().size(), 3 * (1 + 3 * layers) + 1);
  EXPECT_EQ(first->log()->decisions().size(), 3 * layers);
  EXPECT_EQ(first->range_flags(), kernels::kInRange);
  EXPECT_GT(first->weight_bytes(), 0);
}

TEST_F(TwoRanks, LoadingEndsWhenTheGroupHasFailed) {
  group_->Abort("rank 0: gave up");
  const auto worker = RankWorker::Make(small_.model(), layout_, SmallOptions(), Comms(1), {});
  ASSERT_FALSE(worker.ok());
  EXPECT_EQ(worker.error().code, Code::kPeer);
}

TEST_F(TwoRanks, LoadingShowsProgress) {
  const uint32_t before = group_->progress(1).load();
  Worker(1, SmallOptions());
  EXPECT_GT(group_->progress(1).load(), before + 10);
}

}  // namespace
}  // namespace trivet::engine
