// SPDX-License-Identifier: Apache-2.0
#include "proof/verdict.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/paths.h"

namespace trivet::proof {
namespace {

TEST(Verdicts, NumbersAndNamesAreDistinctAndAscend) {
  std::set<std::string> names;
  int last = -1;
  for (const auto& [verdict, name] : Verdicts()) {
    EXPECT_GT(static_cast<int>(verdict), last);
    last = static_cast<int>(verdict);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(VerdictName(verdict), name);
  }
  EXPECT_EQ(last, 82);
  EXPECT_STREQ(VerdictName(Verdict::kRouteSemanticFingerprintMismatch), "ROUTE_SEMANTIC_FINGERPRINT_MISMATCH");
}

// The page for users has the same table.
TEST(Verdicts, ArePartOfTheDocuments) {
  std::ifstream file(SourceRoot() + "/docs/proof.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const auto& [verdict, name] : Verdicts()) {
    const std::string row = "| " + std::to_string(static_cast<int>(verdict)) + " | " + name + " |";
    EXPECT_NE(text.str().find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace trivet::proof
