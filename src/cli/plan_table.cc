// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/str.h"

namespace trivet::cli {
namespace {

enum class Align { kLeft, kRight };

// A table whose columns are as wide as their widest cell.
class Table {
 public:
  Table(std::vector<Align> aligns, std::vector<std::string> header) : aligns_(std::move(aligns)) {
    Add(std::move(header));
  }

  void Add(std::vector<std::string> cells) {
    CHECK(cells.size() == aligns_.size());
    rows_.push_back(std::move(cells));
  }

  std::string Text() const {
    std::vector<size_t> widths(aligns_.size(), 0);
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string_view gap = i == 0 ? "" : "  ";
        line += aligns_[i] == Align::kLeft ? fmt::format("{}{:<{}}", gap, row[i], widths[i])
                                           : fmt::format("{}{:>{}}", gap, row[i], widths[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<Align> aligns_;
  std::vector<std::vector<std::string>> rows_;
};

// "4/3/3", or where that is long "485 on 8 ranks, 484 on 8".
std::string PerRank(const std::vector<int64_t>& counts) {
  constexpr size_t kLongest = 24;
  const std::string list = fmt::format("{}", fmt::join(counts, "/"));
  if (list.size() <= kLongest) return list;
  std::string runs;
  for (size_t i = 0; i < counts.size();) {
    size_t end = i;
    while (end < counts.size() && counts[end] == counts[i]) ++end;
    runs += fmt::format("{}{} on {}{}", runs.empty() ? "" : ", ", counts[i], end - i, runs.empty() ? " ranks" : "");
    i = end;
  }
  return runs;
}

std::string Times(double factor) { return fmt::format("{:.2f}x", factor); }

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

std::string AxisTable(const plan::Layout& layout) {
  Table table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kLeft, Align::kRight, Align::kLeft,
               Align::kLeft},
              {"axis", "unit", "stock", "padded", "per rank", "factor", "cut", "reason"});
  for (const plan::AxisPlan& row : layout.axes) {
    table.Add({row.axis, row.unit, fmt::format("{}", row.stock), fmt::format("{}", row.padded), PerRank(row.per_rank),
               Times(row.factor), row.cut, row.reason});
  }
  return table.Text();
}

// "0 to 2", "0".
std::string Span(int64_t begin, int64_t end) {
  return end - begin == 1 ? fmt::format("{}", begin) : fmt::format("{} to {}", begin, end - 1);
}

// The ranks that hold the same place in every replica: "1, 7".
std::string RanksAt(const plan::Layout& layout, size_t place) {
  std::vector<size_t> ranks;
  for (int64_t d = 0; d < layout.replicas; ++d) {
    ranks.push_back(place + static_cast<size_t>(d) * layout.shards.size());
  }
  return fmt::format("{}", fmt::join(ranks, ", "));
}

std::string RankTable(const plan::Layout& layout, const plan::LayoutCost& cost) {
  Table table({Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight},
              {layout.replicas == 1 ? "rank" : "ranks", "layers", "weights", "step reads", "KV per token",
               "state per sequence"});
  for (size_t r = 0; r < cost.ranks.size(); ++r) {
    const plan::RankCost& rank = cost.ranks[r];
    const plan::Stage& stage = layout.shards[r].stage;
    table.Add({RanksAt(layout, r), Span(stage.begin, stage.end), Bytes(rank.weight_bytes), Bytes(rank.step_bytes),
               Bytes(rank.kv_token_bytes), Bytes(rank.state_bytes)});
  }
  return table.Text();
}

// "on 3 ranks", or with shares, stages and replicas "on 24 ranks: 2 replicas of 2 stages of 2 shares of 3 ranks".
std::string Where(const plan::Layout& layout) {
  const auto count = [](size_t number, const char* what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  const auto ranks = static_cast<size_t>(layout.ranks), replicas = static_cast<size_t>(layout.replicas);
  const std::string all = "on " + count(static_cast<size_t>(layout.world()), "rank");
  if (layout.world() == layout.ranks) return all;
  return fmt::format("{}: {} of {} of {} of {}", all, count(replicas, "replica"), count(layout.stages.size(), "stage"),
                     count(static_cast<size_t>(layout.context.ranks), "share"), count(ranks, "rank"));
}

// Who has which positions, where they are shared out.
std::string ContextText(const plan::Layout& layout) {
  const plan::ContextSplit& context = layout.context;
  if (context.ranks == 1) return "";
  return fmt::format(
      "positions of every sequence are shared out over {} ranks, {} in stretches of {}: each computes its "
      "own, and has the weights, and the keys, values and states of all\n",
      context.ranks, plan::SequenceSplitName(context.split), context.stretch);
}

// Who keeps which rows, where they are dealt.
std::string SequenceText(const plan::Layout& layout) {
  if (!layout.sequence_parallel || layout.ranks == 1) return "";
  return fmt::format(
      "rows of a step are dealt to the {} ranks that cut a layer, by their positions: each keeps the residual stream "
      "of "
      "its own, and norms and routers run on these\n",
      layout.ranks);
}

std::string CollectiveTable(const plan::LayoutCost& cost) {
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight},
              {"collective", "per step", "elements", "exact", "fast"});
  int64_t exact = 0;
  int64_t fast = 0;
  for (const plan::CollectiveCost& site : cost.collectives) {
    table.Add({site.site, fmt::format("{}", site.count), fmt::format("{}", site.elements),
               Bytes(site.count * site.bytes_exact), Bytes(site.count * site.bytes_fast)});
    exact += site.count * site.bytes_exact;
    fast += site.count * site.bytes_fast;
  }
  table.Add({"bytes per token", "", "", Bytes(exact), Bytes(fast)});
  return table.Text();
}

std::string CutSummary(const plan::Layout& layout) {
  std::string text;
  for (const plan::AxisPlan& row : layout.axes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", row.axis, row.cut);
  }
  return text;
}

}  // namespace

std::string RenderLayoutTable(const plan::Geometry& geometry, const plan::Layout& layout,
                              const plan::LayoutCost& cost) {
  std::string text = fmt::format("{}: {} layers, width {}, vocabulary {}, {}\n\n", geometry.family,
                                 geometry.layers.size(), geometry.hidden, geometry.vocab, Where(layout));
  text += AxisTable(layout);
  if (layout.placement) {
    text += fmt::format("experts live by the map {}, {}\n", Quote(layout.placement->version),
                        layout.placement->ContentDigest());
  }
  text += "\n" + RankTable(layout, cost) + ContextText(layout) + SequenceText(layout);
  text += fmt::format("\nof the ideal 1/{}: weights {}, step {} ({} on the critical path), KV cache {}\n",
                      layout.shards.size(), Times(cost.weight_factor), Times(cost.step_factor),
                      Bytes(cost.critical_bytes), Times(cost.kv_factor));
  text += cost.collectives.empty() ? "\nno collectives\n" : "\n" + CollectiveTable(cost);
  return text;
}

std::string RenderOtherRanks(const plan::Geometry& geometry, const plan::ElementBytes& bytes, int64_t ranks) {
  Table table({Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft},
              {"ranks", "step reads", "of 1/N", "weights per rank", "KV of 1/N", "cuts"});
  for (int64_t other = 1; other <= plan::kMaxRanks; ++other) {
    if (other == ranks) continue;
    plan::LayoutOptions options;
    options.ranks = other;
    const Result<plan::Layout> layout = plan::MakeLayout(geometry, options);
    CHECK(layout.ok());  // no forced cut, so every rank count has a layout
    const plan::LayoutCost cost = plan::PriceLayout(geometry, *layout, bytes);
    int64_t weights = 0;
    for (const plan::RankCost& rank : cost.ranks) weights = std::max(weights, rank.weight_bytes);
    table.Add({fmt::format("{}", other), Bytes(cost.critical_bytes), Times(cost.step_factor), Bytes(weights),
               Times(cost.kv_factor), CutSummary(*layout)});
  }
  return table.Text();
}

std::string RenderMemoryTable(const plan::MemoryPlan& memory) {
  Table table({Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight},
              {"rank", "weights", "KV cache", "states", "snapshots", "scratch", "total"});
  for (size_t r = 0; r < memory.ranks.size(); ++r) {
    const plan::RankMemory& rank = memory.ranks[r];
    table.Add({fmt::format("{}", r), Bytes(rank.weights), Bytes(rank.kv), Bytes(rank.states), Bytes(rank.snapshots),
               Bytes(rank.scratch), Bytes(rank.total())});
  }
  return table.Text() +
         fmt::format(
             "{} of {} available ({}), at most {}: {} tokens of KV cache, {} sequences of at most {} tokens, {} "
             "snapshots{}\n",
             Bytes(memory.total()), Bytes(memory.available), memory.source, Bytes(memory.budget), memory.kv_tokens,
             memory.sequences, memory.context, memory.snapshots, memory.replicas == 1 ? "" : ", each replica");
}

}  // namespace trivet::cli
