// SPDX-License-Identifier: Apache-2.0
#include "server/api_error.h"

#include <gtest/gtest.h>

namespace trivet::server {
namespace {

TEST(ApiError, ShapeIsOpenAIs) {
  const Json json = ApiError{404, "model: expected a, found b; see c", "model", "model_not_found"}.ToJson();
  EXPECT_EQ(json["error"]["message"], "model: expected a, found b; see c");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["param"], "model");
  EXPECT_EQ(json["error"]["code"], "model_not_found");
  const Json other = ApiError{503, "gone", "", ""}.ToJson();
  EXPECT_EQ(other["error"]["type"], "server_error");
  EXPECT_TRUE(other["error"]["param"].is_null());
  EXPECT_TRUE(other["error"]["code"].is_null());
  EXPECT_EQ((ApiError{429, "full", "", ""}.ToJson()["error"]["type"]), "rate_limit_error");
}

TEST(ApiError, StatusesOfOurErrors) {
  EXPECT_EQ(FromError(MakeError(Code::kInvalid, "x"), "stop").status, 400);
  EXPECT_EQ(FromError(MakeError(Code::kInvalid, "x"), "stop").param, "stop");
  EXPECT_EQ(FromError(MakeError(Code::kCapacity, "x")).code, "context_length_exceeded");
  EXPECT_EQ(FromError(MakeError(Code::kUnsupported, "x")).status, 400);
  EXPECT_EQ(FromError(MakeError(Code::kPeer, "rank 1 died")).status, 503);
  EXPECT_EQ(FromError(MakeError(Code::kPeer, "rank 1 died")).message, "rank 1 died");
  EXPECT_EQ(FromError(MakeError(Code::kIo, "x")).status, 503);
}

TEST(ApiError, AWrongFieldNamesItself) {
  const ApiError error = WrongField("n", "an integer", "three");
  EXPECT_EQ(error.message, "n: expected an integer, found \"three\"; correct it");
  EXPECT_EQ(error.param, "n");
  EXPECT_EQ(WrongField("n", "an integer", Json()).message, "n: expected an integer, found none; correct it");
  EXPECT_TRUE(ApiStatus().ok());
  EXPECT_FALSE(ApiStatus(error).ok());
}

}  // namespace
}  // namespace trivet::server
