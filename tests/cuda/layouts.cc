// SPDX-License-Identifier: Apache-2.0
// Models on GPUs, by bytes: under the portable contract their logits are the processor's, under the exact one they are
// those of one rank and near the processor's, for every count of ranks, transport, chunk, and for recorded steps. With
// keys and values in FP8 as well, on up to three ranks. Fast logits are the exact ones on one rank, near them on more,
// and the same for every chunk and transport. All in one process, since starting to use a GPU takes longer than any of
// this.
//   cuda_layouts_test [--ranks N,...] MODEL...
// Ranks share the GPUs where they are fewer.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

#include "base/list.h"
#include "base/str.h"
#include "device/device.h"
#include "tests/support/model_runs.h"

namespace trivet {
namespace {

using engine::EngineOptions;

constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE
constexpr int64_t kMostFp8Ranks = 3;
constexpr double kTolerance = 0.001;  // that logits of the public implementation have, too

// One way to run a model.
struct Layout {
  std::string name;
  int64_t ranks = 1, chunk = 512;
  comm::Transport transport = comm::Transport::kAuto;
};

// Steps of one token are recorded graphs; their logits cross borders of pages.
std::vector<Layout> LayoutsOf(const std::vector<int64_t>& ranks, bool all_graphs) {
  const int64_t few = std::find(ranks.begin(), ranks.end(), 3) != ranks.end() ? 3 : ranks.front();
  std::vector<Layout> layouts = {{"1 rank", 1}, {"1 rank, chunks of 1", 1, 1}};
  for (const int64_t n : ranks) layouts.push_back({fmt::format("{} ranks", n), n});
  layouts.push_back({fmt::format("{} ranks through the host", few), few, 512, comm::Transport::kHost});
  layouts.push_back({fmt::format("{} ranks, chunks of 7", few), few, 7});
  for (const int64_t n : ranks) {
    if (n == few || all_graphs) layouts.push_back({fmt::format("{} ranks, chunks of 1", n), n, 1});
  }
  return layouts;
}

EngineOptions OptionsOf(const Layout& layout, kernels::Contract contract, cache::KvDtype kv_dtype) {
  EngineOptions options;
  options.kv_dtype = kv_dtype;
  options.backend = Backend::kCuda;
  options.kernels.contract = contract;
  options.layout.ranks = layout.ranks;
  options.prefill_chunk = layout.chunk;
  options.transport = layout.transport;
  return options;
}

// What one model's runs came to.
class ModelCheck {
 public:
  ModelCheck(std::string name, const engine::OpenedModel& model, support::TokenSet set)
      : name_(std::move(name)), model_(model), set_(std::move(set)) {}

  void Run(std::vector<Layout> layouts) {
    RunKind(layouts);
    CheckFast(layouts);
    kv_dtype_ = cache::KvDtype::kE4M3;
    std::erase_if(layouts, [](const Layout& layout) { return layout.ranks > kMostFp8Ranks; });
    RunKind(layouts);
  }

  int failed() const { return failed_; }
  int64_t compared() const { return compared_; }

 private:
  // One way to keep keys and values.
  void RunKind(const std::vector<Layout>& layouts) {
    std::vector<float> cpu, one;
    EngineOptions processor;
    processor.kv_dtype = kv_dtype_;
    if (!Score("the processor", processor, &cpu)) return;
    int64_t portable = 0, exact = 0;
    for (const Layout& layout : layouts) portable += Compare(layout, kernels::Contract::kPortable, cpu);
    if (!Score("1 rank, exact", OptionsOf(layouts[0], kernels::Contract::kMatrix, kv_dtype_), &one)) return;
    for (const Layout& layout : layouts) exact += Compare(layout, kernels::Contract::kMatrix, one);
    compared_ += portable + exact;
    // A key that is near another one may have another code: codes do not keep logits near.
    const double apart = support::LargestDifference(cpu, one);
    if (kv_dtype_ == cache::KvDtype::kF32 && !(apart <= kTolerance)) {
      Fail("exact", fmt::format("logits are {} from the processor's", apart));
    }
    std::printf(
        "%s, keys and values %s: %lld portable logits are the processor's, %lld exact ones those of one rank and "
        "within %.2g of it; %lld drawn tokens are those of their logits\n",
        name_.c_str(), cache::KvDtypeName(kv_dtype_), static_cast<long long>(portable), static_cast<long long>(exact),
        apart, static_cast<long long>(std::exchange(drawn_, 0)));
    std::fflush(stdout);
  }
  // Layouts of one rank count have one result.
  void CheckFast(const std::vector<Layout>& layouts) {
    std::map<int64_t, std::vector<float>> first;
    if (!Score("1 rank, exact", OptionsOf(layouts[0], kernels::Contract::kMatrix, kv_dtype_), &first[1])) return;
    int64_t equal = 0;
    double apart = 0;
    for (const Layout& layout : layouts) {
      EngineOptions options = OptionsOf(layout, kernels::Contract::kMatrix, kv_dtype_);
      options.numerics = kernels::Numerics::kFast;
      std::vector<float> found;
      if (!Score("fast, " + layout.name, options, &found)) return;
      const auto [same, is_first] = first.try_emplace(layout.ranks, found);
      const std::string difference = support::FirstDifference(same->second, found, model_.geometry.vocab);
      if (!difference.empty()) {
        Fail("fast, " + layout.name, difference);
      } else if (!is_first) {
        equal += static_cast<int64_t>(found.size());
      }
      apart = std::max(apart, support::LargestDifference(first[1], found));
    }
    compared_ += equal;
    if (!(apart <= kTolerance && apart > 0)) Fail("fast", fmt::format("logits are {} from the exact ones", apart));
    std::printf("%s: %lld fast logits are those of the same ranks, all within %.2g of the exact ones\n", name_.c_str(),
                static_cast<long long>(equal), apart);
  }
  bool Score(const std::string& what, const EngineOptions& options, std::vector<float>* logits) {
    const Result<std::unique_ptr<engine::Engine>> engine = engine::Engine::Start(model_, options, {});
    if (!engine.ok()) return Fail(what, engine.error().message);
    Result<std::vector<float>> scored = support::ScoreAll(engine->get(), set_);
    if (!scored.ok()) return Fail(what, scored.error().message);
    *logits = std::move(scored).value();
    return CheckDrawn(what, engine->get());
  }
  // Whether tokens that come alone, greedy and sampled ones, are those of whole logits, beside others and among
  // themselves. Decode steps are recorded, and these runs share recordings.
  bool CheckDrawn(const std::string& what, engine::Engine* engine) {
    constexpr int32_t kNew = 12;
    const support::TokenSet prompts(set_.begin(), set_.begin() + 3);
    using enum sched::LogitsMode;
    std::vector<support::TokenSet> runs;
    for (const std::vector<sched::LogitsMode>& modes :
         {std::vector{kLast, kLast, kLast}, {kDrawn, kLast, kDrawn}, {kDrawn, kDrawn, kDrawn}}) {
      Result<support::TokenSet> run =
          support::Continue(engine, prompts, kNew, modes, support::WaysToSample(prompts.size()));
      if (!run.ok()) return Fail(what, run.error().message);
      runs.push_back(std::move(run).value());
      if (runs.back() != runs.front()) return Fail(what, "drawn tokens differ from those of whole logits");
    }
    drawn_ += 3 * 3 * kNew;
    return true;
  }
  // Logits that are equal, if all are.
  int64_t Compare(const Layout& layout, kernels::Contract contract, const std::vector<float>& expected) {
    const std::string what = fmt::format("keys and values {}, {}, {}", cache::KvDtypeName(kv_dtype_),
                                         contract == kernels::Contract::kPortable ? "portable" : "exact", layout.name);
    std::vector<float> found;
    if (!Score(what, OptionsOf(layout, contract, kv_dtype_), &found)) return 0;
    const std::string difference = support::FirstDifference(expected, found, model_.geometry.vocab);
    if (!difference.empty()) return Fail(what, difference);
    return static_cast<int64_t>(found.size());
  }
  bool Fail(const std::string& what, const std::string& why) {
    std::printf("FAILED %s, %s: %s\n", name_.c_str(), what.c_str(), why.c_str());
    ++failed_;
    return false;
  }

  const std::string name_;
  const engine::OpenedModel& model_;
  const support::TokenSet set_;
  int failed_ = 0;
  int64_t compared_ = 0, drawn_ = 0;
  cache::KvDtype kv_dtype_ = cache::KvDtype::kF32;
};

support::TokenSet TokensOf(const engine::OpenedModel& model, bool many) {
  if (many) {
    support::GoldenCase some;
    some.tokens = support::RandomTokens(60, model.geometry.vocab, 60);
    return support::TwoThousandTokens({some}, model.geometry.vocab);
  }
  support::TokenSet set;
  for (const int64_t count : {150, 1, 33}) {
    set.push_back(support::RandomTokens(count, model.geometry.vocab, static_cast<uint64_t>(count)));
  }
  return set;
}

// Counts as a flag has them.
Result<std::vector<int64_t>> ParseCounts(const std::string& text) {
  std::vector<int64_t> counts;
  TRY_ASSIGN(const std::vector<std::string> pieces, ParseList(text, "--ranks"));
  for (const std::string& piece : pieces) {
    TRY_ASSIGN(const int64_t count, ParseInt(piece, "--ranks"));
    counts.push_back(count);
  }
  return counts;
}

int CheckModels(const std::vector<std::string>& models, const std::vector<int64_t>& ranks) {
  int failed = 0;
  int64_t compared = 0;
  for (const std::string& dir : models) {
    const std::string name = dir.substr(dir.rfind('/') + 1);
    const Result<engine::OpenedModel> model = engine::OpenModel(dir, dir);
    if (!model.ok()) {
      std::printf("%s: %s\n", name.c_str(), model.error().message.c_str());
      failed += model.error().code == Code::kUnsupported ? 0 : 1;  // what is refused is refused everywhere
      continue;
    }
    // The first model is compared at length.
    const bool first = dir == models.front();
    ModelCheck check(name, *model, TokensOf(*model, first));
    check.Run(LayoutsOf(ranks, first));
    failed += check.failed();
    compared += check.compared();
  }
  std::printf("%lld logits compared by bytes, %d comparisons failed\n", static_cast<long long>(compared), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace trivet

int main(int argc, char** argv) {
  std::vector<std::string> models;
  std::vector<int64_t> ranks = {2, 3, 5, 7};
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--ranks" && i + 1 < argc) {
      const auto counts = trivet::ParseCounts(argv[++i]);
      if (!counts.ok()) {
        std::fprintf(stderr, "%s\n", counts.error().message.c_str());
        return 2;
      }
      ranks = *counts;
    } else {
      models.emplace_back(argv[i]);
    }
  }
  if (models.empty()) {
    std::fprintf(stderr, "expected [--ranks N,...] MODEL...\n");
    return 2;
  }
  if (const auto device = trivet::device::Device::Open(trivet::Backend::kCuda, 0); !device.ok()) {
    std::printf("skipped: %s\n", device.error().message.c_str());
    return trivet::kSkipped;
  }
  return trivet::CheckModels(models, ranks);
}
