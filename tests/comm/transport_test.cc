// SPDX-License-Identifier: Apache-2.0
#include "comm/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trivet::comm {
namespace {

TEST(ParseTransport, KnowsItsNamesAndNoOthers) {
  EXPECT_EQ(*ParseTransport("auto"), Transport::kAuto);
  EXPECT_EQ(*ParseTransport("host"), Transport::kHost);
  EXPECT_EQ(*ParseTransport("peer"), Transport::kPeer);
  const Result<Transport> other = ParseTransport("nccl");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Code::kUsage);
  EXPECT_THAT(other.error().message, testing::HasSubstr("--transport: expected auto, host or peer, found \"nccl\""));
}

TEST(AlgorithmName, IsTheFieldsWord) {
  EXPECT_STREQ(AlgorithmName(Algorithm::kOneShot), "one-shot");
  EXPECT_STREQ(AlgorithmName(Algorithm::kTwoShot), "two-shot");
  EXPECT_STREQ(AlgorithmName(Algorithm::kWeighted), "weighted");
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kWeighted}) {
    EXPECT_EQ(ParseAlgorithm(AlgorithmName(algorithm)).value(), algorithm);
  }
  EXPECT_EQ(ParseAlgorithm("ring").error().code, Code::kUsage);
}

}  // namespace
}  // namespace trivet::comm
