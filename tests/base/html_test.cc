// SPDX-License-Identifier: Apache-2.0
#include "base/html.h"

#include <gtest/gtest.h>

namespace trivet {
namespace {

TEST(Html, EscapesWhatItGivesAMeaning) {
  EXPECT_EQ(EscapeHtml("<a href='\"'>&"), "&lt;a href=&#39;&#34;&#39;&gt;&amp;");
}

}  // namespace
}  // namespace trivet
