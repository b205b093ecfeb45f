// SPDX-License-Identifier: Apache-2.0
#include "record/run_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace trivet::record {
namespace {

LogOptions Options(Level level) {
  return {level, Hash128(std::string_view("domain")), 2, {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, 3};
}

// Two tokens of one request and a row of padding.
void Begin(RunLog* log, uint32_t step = 0) {
  log->BeginStep({{GlobalToken(0, 4), step, 0, 9, 0}, {kPadding, step, 1, 0, 0}, {GlobalToken(0, 5), step, 2, 8, 0}},
                 {GlobalToken(0, 5)});
}

struct Chosen {
  std::vector<int32_t> experts = {3, 0, 1, 2, 2, 1};
  std::vector<float> weights = {0.75F, 0.25F, 0.5F, 0.5F, 0.875F, 0.125F};
  std::vector<float> scores = {3, 2, 1, 1, 5, 4};
  std::vector<float> choice = {3, 2, 1, 1, 1, 0, 5, 4, 3};
  Choice view(int64_t among = 4) const {
    return {experts.data(), weights.data(), scores.data(), choice.data(), nullptr, nullptr, among};
  }
};

TEST(RunLog, RowsAreNotedByTokenAndPaddingIsNot) {
  RunLog log(Options(Level::kDigest));
  Begin(&log);
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  log.Rows(Site::kMixer, 2, values);
  ASSERT_EQ(log.bounds().size(), 2U);
  EXPECT_EQ(log.bounds()[1].token, GlobalToken(0, 5));
  EXPECT_EQ(log.bounds()[1].digest, Hash128(std::as_bytes(std::span<const float>(values).subspan(4, 2))));
  log.LogitsRows(Site::kLogits, 8, std::vector<float>{1, 2, 3});
  EXPECT_EQ(log.bounds().size(), 3U);
  EXPECT_TRUE(log.logits().empty()) << "of level rows";
}

// A rank without rows in a step takes part in it and has nothing to note.
TEST(RunLog, AStepWithoutRowsLeavesNothing) {
  RunLog log({Level::kFull, {}, 1, {{0, 0}}, 0});
  log.BeginStep({}, {});
  log.Rows(Site::kEmbed, kBeforeLayers, {});
  log.LogitsRows(Site::kLogits, 1, {});
  log.Route(0, {});
  log.Execute(0, {}, {});
  log.Count({Site::kMixer, 0, 2, "all-reduce", "one-shot"});
  log.Sort();
  EXPECT_TRUE(log.rows().empty() && log.bounds().empty() && log.decisions().empty() && log.executions().empty());
  EXPECT_TRUE(log.collectives().empty()) << "a sum of no rows is none";
}

// Of three rows that a rank computes with others it keeps the last, and the logits are those of all.
TEST(RunLog, RowsThatOthersKeepAreTheirsToNote) {
  RunLog log(Options(Level::kFull));
  log.BeginStep({{GlobalToken(0, 4), 0, 0, 9, 0}, {GlobalToken(0, 5), 0, 1, 8, 0}, {GlobalToken(0, 6), 0, 2, 7, 0}},
                {GlobalToken(0, 5), GlobalToken(0, 6)}, KeptRows{{2}, {1}});
  const Chosen chosen;
  log.Rows(Site::kMixer, 0, std::vector<float>{1, 2});
  log.LogitsRows(Site::kFinalNorm, 8, std::vector<float>{3, 4});
  log.LogitsRows(Site::kLogits, 8, std::vector<float>{5, 6});
  log.Route(0, chosen.view());
  log.Execute(0, std::vector<int32_t>{0, 5}, std::vector<int32_t>{1, 0});
  log.Count({Site::kMixer, 0, 2, "reduce-scatter", "one-shot"});
  log.Sort();
  ASSERT_EQ(log.rows().size(), 1U);
  EXPECT_EQ(log.rows()[0].token, GlobalToken(0, 6));
  ASSERT_EQ(log.bounds().size(), 4U);
  EXPECT_EQ(log.bounds()[0].token, GlobalToken(0, 6));
  EXPECT_EQ(log.bounds()[1].site, Site::kFinalNorm);
  EXPECT_EQ(log.bounds()[1].token, GlobalToken(0, 6));
  EXPECT_EQ(log.bounds()[2].token, GlobalToken(0, 5)) << "the logits of all rows are on one rank";
  ASSERT_EQ(log.decisions().size(), 1U);
  EXPECT_EQ(log.decisions()[0].token, GlobalToken(0, 6));
  EXPECT_EQ(log.route_slots()[0].expert, 2);
  EXPECT_EQ(log.dispatches().size(), 2U);
  // It multiplies for those that keep the others.
  ASSERT_EQ(log.executions().size(), 2U);
  EXPECT_EQ(log.executions()[0].token, GlobalToken(0, 4));
  EXPECT_EQ(log.collectives().size(), 1U);
  // Nor does a rank that keeps none of a step's rows leave out the sums that it takes part in.
  log.BeginStep({{GlobalToken(0, 7), 1, 0, 9, 0}}, {}, KeptRows{});
  log.Rows(Site::kMixer, 0, {});
  log.Count({Site::kMixer, 0, 2, "reduce-scatter", "two-shot"});
  EXPECT_EQ(log.collectives().size(), 2U);
}

TEST(RunLog, LevelsNoteMore) {
  for (const Level level : {Level::kDigest, Level::kRows, Level::kFull}) {
    RunLog log(Options(level));
    Begin(&log);
    log.Route(1, Chosen().view());
    log.Execute(1, std::vector<int32_t>{0, 3, 5}, std::vector<int32_t>{1, 0, 0});
    log.KeepLogits(std::vector<int64_t>{kPadding, GlobalToken(7, 5)}, std::vector<float>{1, 2, 3, 4});
    EXPECT_EQ(log.decisions().size(), 2U);
    EXPECT_EQ(log.routes().size(), level >= Level::kRows ? 2U : 0U);
    EXPECT_EQ(log.logits().size(), level >= Level::kRows ? 1U : 0U);
    if (level >= Level::kRows) {
      EXPECT_EQ(log.logits().at(GlobalToken(7, 5)), (std::vector<float>{3, 4}));
    }
    EXPECT_EQ(log.dispatches().size(), level == Level::kFull ? 4U : 0U);
    // The pair of the padding row is no token's.
    EXPECT_EQ(log.executions().size(), level == Level::kFull ? 2U : 0U);
    if (level < Level::kFull) continue;
    EXPECT_EQ(log.dispatches()[0].ep_rank, 1);
    EXPECT_EQ(log.dispatches()[0].local_slot, 1);
    EXPECT_EQ(log.dispatches()[0].version, 3U);
    EXPECT_EQ(log.executions()[1].token, GlobalToken(0, 5));
    EXPECT_EQ(log.executions()[1].slot, 1);
  }
}

TEST(RunLog, TheNarrowestChoiceIsKept) {
  RunLog log(Options(Level::kDigest));
  EXPECT_EQ(log.chosen_among(), 0);
  Begin(&log);
  for (const int64_t among : {4, 3, 4}) log.Route(1, Chosen().view(among));
  EXPECT_EQ(log.chosen_among(), 3);
}

TEST(RunLog, DispatchesAreByThePlacementInUse) {
  RunLog log(Options(Level::kFull));
  Begin(&log);
  log.Route(1, Chosen().view());
  log.Place({{1, 1}, {1, 0}, {0, 1}, {0, 0}}, 4);
  log.Route(2, Chosen().view());
  ASSERT_EQ(log.dispatches().size(), 8U);
  EXPECT_EQ(log.dispatches()[0].version, 3U);
  EXPECT_EQ(log.dispatches()[4].version, 4U);
  EXPECT_EQ(log.dispatches()[4].expert, 3);
  EXPECT_EQ(log.dispatches()[4].ep_rank, 0);
  EXPECT_EQ(log.dispatches()[4].local_slot, 0);
}

TEST(RunLog, ADigestCoversEverythingOfADecision) {
  const RouteHead head{GlobalToken(1, 2), 5, 3, 2, 0.5F, 0};
  const std::vector<RouteSlot> slots = {{1, 0, 0.75F, 3, 3}, {0, 0, 0.25F, 2, 2}};
  const Digest domain = Hash128(std::string_view("domain")), digest = DecisionDigest(domain, head, slots);
  EXPECT_EQ(DecisionDigest(domain, head, slots), digest);
  EXPECT_NE(DecisionDigest(Hash128(std::string_view("other")), head, slots), digest);
  for (const RouteHead& other :
       {RouteHead{GlobalToken(1, 3), 5, 3, 2, 0.5F, 0}, RouteHead{GlobalToken(1, 2), 6, 3, 2, 0.5F, 0},
        RouteHead{GlobalToken(1, 2), 5, 4, 2, 0.5F, 0}}) {
    EXPECT_NE(DecisionDigest(domain, other, slots), digest);
  }
  for (size_t i = 0; i < 4; ++i) {
    std::vector<RouteSlot> other = slots;
    if (i == 0) other[1].expert = 2;
    if (i == 1) other[1].weight = std::nextafter(0.25F, 1.0F);
    if (i == 2) other[0].score = 4;
    if (i == 3) other[0].selection = 4;
    EXPECT_NE(DecisionDigest(domain, head, other), digest) << i;
  }
}

// However many slots: all of them count, the last one too.
TEST(RunLog, ADigestCoversManySlots) {
  for (const size_t count : {1, 28, 29, 30, 31, 64}) {
    std::vector<RouteSlot> slots(count);
    for (size_t i = 0; i < count; ++i) slots[i] = {static_cast<uint16_t>(i), 0, 0.5F, 1.0F, 2.0F};
    const RouteHead head{GlobalToken(1, 2), 5, 3, static_cast<uint16_t>(count), 0.5F, 0};
    const Digest domain = Hash128(std::string_view("domain")), digest = DecisionDigest(domain, head, slots);
    std::string bytes;
    const auto put = [&](const auto& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
    put(domain);
    put(head.token);
    put(head.input);
    put(head.layer);
    put(head.top_k);
    for (const RouteSlot& slot : slots) put(slot);
    EXPECT_EQ(digest, Hash128(std::string_view(bytes))) << count;
    slots.back().weight = 0.25F;
    EXPECT_NE(DecisionDigest(domain, head, slots), digest) << count;
  }
}

TEST(RunLog, NumbersThatAreNotFiniteAreMarked) {
  RunLog log(Options(Level::kDigest));
  Begin(&log);
  Chosen chosen;
  chosen.weights[5] = std::numeric_limits<float>::infinity();
  log.Route(0, chosen.view());
  EXPECT_EQ(log.decisions()[0].finite, 1);
  EXPECT_EQ(log.decisions()[1].finite, 0);
}

// A sequence that lost its pages is computed again: equal records are one, different ones stay for the verifier.
TEST(RunLog, WhatIsRepeatedIsNotedOnce) {
  RunLog log(Options(Level::kRows));
  const std::vector<float> values = {1, 2, 3};
  for (const uint32_t step : {0U, 5U}) {
    Begin(&log, step);
    log.Rows(Site::kEmbed, kBeforeLayers, values);
    log.Route(1, Chosen().view());
  }
  log.Rows(Site::kMixer, 0, values);
  log.Rows(Site::kMixer, 0, std::vector<float>{1, 2, 4});
  log.Sort();
  EXPECT_EQ(log.decisions().size(), 2U);
  EXPECT_EQ(log.routes().size(), 2U);
  EXPECT_EQ(log.route_slots().size(), 4U);
  EXPECT_EQ(log.bounds().size(), 2U + 3U);
  EXPECT_EQ(log.bounds()[0].site, Site::kEmbed) << "in the order of the dataflow";
}

// Steps of two requests, whose tokens meet in every site, the later layers' first.
TEST(RunLog, RecordsAreSortedByLayerSiteAndToken) {
  RunLog log(Options(Level::kDigest));
  const std::vector<float> values = {1, 2};
  for (const uint32_t step : {0U, 300U, 1U}) {
    log.BeginStep({{GlobalToken(1, step), step, 0, 9, 0}, {GlobalToken(0, 400 - step), step, 1, 9, 0}},
                  {GlobalToken(0, 400 - step)});
    for (const int16_t layer : {int16_t{3}, int16_t{0}}) {
      for (const Site site : {Site::kChannels, Site::kMixer}) log.Rows(site, layer, values);
      log.Route(layer, Chosen().view());
    }
    log.Rows(Site::kEmbed, kBeforeLayers, values);
    log.LogitsRows(Site::kLogits, 4, values);
  }
  log.Sort();
  const auto ascends = [](const auto& records, const auto& key) {
    for (size_t i = 1; i < records.size(); ++i) {
      if (!(key(records[i - 1]) < key(records[i]))) return false;
    }
    return true;
  };
  EXPECT_EQ(log.rows().size(), 6U);
  EXPECT_TRUE(ascends(log.rows(), [](const RowRecord& r) { return std::tuple(r.token, r.step, r.row); }));
  EXPECT_EQ(log.decisions().size(), 12U);
  EXPECT_TRUE(ascends(log.decisions(), [](const DecisionRecord& r) { return std::tuple(r.layer, r.token); }));
  EXPECT_EQ(log.bounds().size(), 3U * (8 + 2 + 1));
  EXPECT_TRUE(ascends(log.bounds(), [](const BoundRecord& r) { return std::tuple(r.layer, r.site, r.token); }));
}

}  // namespace
}  // namespace trivet::record
