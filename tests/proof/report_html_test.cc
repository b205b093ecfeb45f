// SPDX-License-Identifier: Apache-2.0
#include "proof/report_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proof/rank_files.h"
#include "proof/synthetic.h"
#include "proof/verify.h"

namespace trivet::proof {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ReportHtml, ShowsRunsComparisonsAndTheFinding) {
  const RecordedRun a = MakeSynthetic({});
  RecordedRun b = MakeSynthetic({});
  EXPECT_THAT(ReportHtml(Verify({{"a", EncodeRun(a)}, {"b", EncodeRun(b)}}, {}).json),
              testing::AllOf(HasSubstr("PASS"), HasSubstr("Compared with the first"), HasSubstr("<td>48</td>")));
  b.ranks[0].bounds[9].digest = {};
  const std::string page = ReportHtml(Verify({{"a", EncodeRun(a)}, {"b", EncodeRun(b)}}, {}).json);
  EXPECT_THAT(page, HasSubstr("BOUNDARY_DIGEST_MISMATCH (77)"));
  EXPECT_THAT(page, HasSubstr("position"));
}

TEST(ReportHtml, NamesCannotBreakThePage) {
  const std::string page = ReportHtml(Verify({{"<script>&\"", {}}}, {}).json);
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;&amp;&#34;"));
  EXPECT_THAT(page, Not(HasSubstr("<script>")));
}

}  // namespace
}  // namespace trivet::proof
