// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_scope.h"

#include <gtest/gtest.h>

namespace trivet::text::jinja {
namespace {

TEST(JinjaScope, InnerScopesHideOuterOnes) {
  Scopes scopes;
  const Scopes::Local outer(&scopes, nullptr);
  SetVariable(outer.get(), "a", Value::Int(1));
  SetVariable(outer.get(), "b", Value::Int(2));
  const Scopes::Local inner(&scopes, outer.get());
  SetVariable(inner.get(), "a", Value::Int(3));
  EXPECT_EQ(FindVariable(inner.get(), "a")->integer(), 3);
  EXPECT_EQ(FindVariable(inner.get(), "b")->integer(), 2);
  EXPECT_EQ(FindVariable(outer.get(), "a")->integer(), 1);
  EXPECT_EQ(FindVariable(inner.get(), "c"), nullptr);
}

TEST(JinjaScope, CapturedScopesAreKept) {
  Scopes scopes;
  Scope* kept = nullptr;
  {
    const Scopes::Local local(&scopes, nullptr);
    SetVariable(local.get(), "a", Value::Int(1));
    Capture(local.get());
    kept = local.get();
  }
  EXPECT_EQ(FindVariable(kept, "a")->integer(), 1);
}

}  // namespace
}  // namespace trivet::text::jinja
