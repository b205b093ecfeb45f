// SPDX-License-Identifier: Apache-2.0
#include "proof/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "base/check.h"
#include "record/run_log.h"

namespace trivet::proof {
namespace {

using record::Site;

constexpr const char* kContract = "trivet.synthetic.v1";
constexpr const char* kGroup = "synthetic";
constexpr int64_t kVocab = 8;

uint64_t Number(const std::string& what) { return Hash128(what).low; }

// A logit of a token, which its digest covers.
std::vector<float> LogitsOf(int64_t token) {
  std::vector<float> logits;
  for (int64_t id = 0; id < kVocab; ++id) {
    logits.push_back(static_cast<float>(Number(fmt::format("logit {} {}", token, id)) % 1000) / 100);
  }
  return logits;
}

int32_t InputOf(int64_t token) { return static_cast<int32_t>(Number(fmt::format("input {}", token)) % kVocab); }

Json Names(const std::vector<Dimension>& dimensions) {
  Json names = Json::array();
  for (const Dimension dimension : dimensions) names.push_back(DimensionName(dimension));
  return names;
}

// Layers in as many runs as there are stages.
Json Stages(int64_t stages) {
  Json list = Json::array();
  for (int64_t stage = 0; stage < stages; ++stage) {
    const int64_t begin = kSyntheticLayers * stage / stages, end = kSyntheticLayers * (stage + 1) / stages;
    list.push_back({{"pp", stage}, {"layers", Json::array({Json::array({begin, end})})}});
  }
  return list;
}

Json LayoutOf(const SyntheticOptions& options) {
  int64_t world = 1;
  for (const Dimension dimension : options.rank_order) world *= options.sizes[static_cast<size_t>(dimension)];
  Json sizes = Json::object(), channels = Json::array();
  for (size_t d = 0; d < kDimensions; ++d) sizes[DimensionName(static_cast<Dimension>(d))] = options.sizes[d];
  for (int64_t rank = 0; rank < world; ++rank) channels.push_back(Json::array({0, kSyntheticHidden}));
  return {{"schema", "trivet.layout.v1"},
          {"group", kGroup},
          {"world", world},
          {"rank_order", Names(options.rank_order)},
          {"sizes", sizes},
          {"sp", options.sp},
          {"cp_layout", options.zigzag ? "zigzag" : "contiguous"},
          {"cp_stretch", options.cp_stretch},
          {"split_order", options.cp_first ? Json::array({"cp", "sp"}) : Json::array({"sp", "cp"})},
          {"expert_group_over", Names(options.expert_group_over)},
          {"stages", Stages(options.sizes[static_cast<size_t>(Dimension::kPp)])},
          {"dp_assignment", {{"mode", "recorded"}, {"requests", options.dp_of}}},
          {"experts", {{"width", kSyntheticHidden}, {"channels", channels}}}};
}

Json KnobsOf(const SyntheticOptions& options) {
  Json knobs = Json::array();
  for (size_t d = 0; d < kDimensions; ++d) {
    const int64_t size = options.sizes[d];
    knobs.push_back({{"path", fmt::format("parallel.{}", DimensionName(static_cast<Dimension>(d)))},
                     {"requested", size},
                     {"materialized", size},
                     {"actual", size},
                     {"status", "applied"},
                     {"evidence", "made up"}});
  }
  return knobs;
}

Json RunOf(const SyntheticOptions& options, const std::string& version) {
  Json requests = Json::array(), layers = Json::array();
  for (size_t i = 0; i < options.lengths.size(); ++i) {
    Json prompt = Json::array(), sampled = Json::array();
    const auto request = static_cast<int64_t>(i);
    // The last sampled token is computed by nobody.
    for (int64_t position = 0; position <= options.lengths[i]; ++position) {
      (position < 3 ? prompt : sampled).push_back(InputOf(record::GlobalToken(request, position)));
    }
    requests.push_back({{"request", i},
                        {"prompt", prompt},
                        {"sampled", sampled},
                        {"computed", options.lengths[i]},
                        {"logits_from", 2}});
  }
  for (int64_t layer = 0; layer < kSyntheticLayers; ++layer) layers.push_back(layer);
  return {
      {"schema", "trivet.run.v1"},
      {"group", kGroup},
      {"command", "selftest"},
      {"model", "synthetic"},
      {"level", record::LevelName(options.level)},
      {"identity",
       {{"family", "synthetic"}, {"checkpoint", "0"}, {"config", "0"}, {"tokenizer", "none"}, {"contract", kContract}}},
      {"router",
       {{"layers", layers},
        {"experts", kSyntheticExperts},
        {"top_k", kSyntheticTopK},
        {"mode", "sigmoid"},
        {"tie_break", "lower expert"},
        {"gate", {{"sharded", false}, {"hidden", kSyntheticHidden}, {"experts", kSyntheticExperts}}}}},
      {"delta_net", {{"layers", Json::array({kSyntheticDelta})}}},
      {"layers", kSyntheticLayers},
      {"hidden", kSyntheticHidden},
      {"vocab", kVocab},
      {"placement", Json::array({version})},
      {"requests", requests},
      {"knobs", KnobsOf(options)},
      {"claims", ClaimsOf(options.level)}};
}

// The ranks that differ from `rank` along one dimension alone.
Json GroupAlong(Dimension dimension, const TokenLayout& layout, int64_t rank) {
  Json group = Json::array();
  const Coordinates at = layout.At(rank);
  for (int64_t other = 0; other < layout.world; ++other) {
    Coordinates there = layout.At(other);
    there[static_cast<size_t>(dimension)] = at[static_cast<size_t>(dimension)];
    if (layout.expert_group_over.empty() ? there == at : std::equal(at.begin(), at.end() - 1, there.begin())) {
      group.push_back(other);
    }
  }
  return group;
}

// Rows that come together from a group.
Json GatherOf(Site site, int64_t layer, const Json& group) {
  return {{"site", record::SiteName(site)},
          {"layer", layer},
          {"ranks", group},
          {"kind", "gather"},
          {"configured", "pieces"},
          {"actual", "pieces"},
          {"fallback_reason", nullptr},
          {"order", "rows"},
          {"owners", nullptr},
          {"payload", "f32"},
          {"accumulate", "none"},
          {"round_at", "nowhere"},
          {"source", "made up"},
          {"calls", 1},
          {"notes", ""}};
}

std::vector<Json> CollectivesOf(const TokenLayout& layout, int64_t rank) {
  std::vector<Json> records;
  const Json group = GroupAlong(Dimension::kTp, layout, rank), context = GroupAlong(Dimension::kCp, layout, rank);
  const bool sums = group.size() > 1;
  for (int64_t layer = 0; layer < layout.layers(); ++layer) {
    if (layout.stage_of[static_cast<size_t>(layer)] != layout.At(rank)[static_cast<size_t>(Dimension::kPp)]) continue;
    for (const Site site : {Site::kMixer, Site::kChannels}) {
      records.push_back({{"site", record::SiteName(site)},
                         {"layer", layer},
                         {"ranks", group},
                         {"kind", sums ? "all-reduce" : "none"},
                         {"configured", sums ? "one-shot" : "none"},
                         {"actual", sums ? "one-shot" : "none"},
                         {"fallback_reason", nullptr},
                         {"order", sums ? "any" : "none"},
                         {"owners", nullptr},
                         {"payload", sums ? "i64" : "none"},
                         {"accumulate", sums ? "i64" : "none"},
                         {"round_at", sums ? "the grid, before the sum" : "none"},
                         {"source", "made up"},
                         {"calls", 1},
                         {"notes", ""}});
    }
    for (const Site site : {Site::kMixerNorm, Site::kChannelsNorm, Site::kRouter}) {
      if (layout.sp && sums) records.push_back(GatherOf(site, layer, group));
    }
    if (context.size() > 1) records.push_back(GatherOf(Site::kShown, layer, context));
    if (context.size() > 1 && layer == kSyntheticDelta) records.push_back(GatherOf(Site::kReturned, layer, context));
  }
  return records;
}

std::string ExpertText(int64_t layer, int64_t expert) { return fmt::format("expert {} of layer {}", expert, layer); }

Json WeightsOf(const TokenLayout& layout, const plan::Placement& placement, int64_t rank) {
  Json experts = Json::array(), reference = Json::array();
  const Coordinates at = layout.At(rank);
  for (int64_t layer = 0; layer < layout.layers(); ++layer) {
    for (int64_t expert = 0; rank == 0 && expert < kSyntheticExperts; ++expert) {
      reference.push_back({{"layer", layer}, {"expert", expert}, {"digest", Hex(Hash128(ExpertText(layer, expert)))}});
    }
    if (layout.stage_of[static_cast<size_t>(layer)] != at[static_cast<size_t>(Dimension::kPp)]) continue;
    const std::vector<int64_t>& table = placement.tables[static_cast<size_t>(at[static_cast<size_t>(Dimension::kEp)])];
    for (size_t slot = 0; slot < table.size(); ++slot) {
      experts.push_back({{"layer", layer},
                         {"slot", slot},
                         {"logical", table[slot]},
                         {"digest", Hex(Hash128(ExpertText(layer, table[slot])))}});
    }
  }
  return {{"experts", experts}, {"reference", reference}};
}

// Fills in what a rank notes of the tokens that it carries.
class RankMaker {
 public:
  RankMaker(const SyntheticOptions& options, const TokenLayout& layout, const plan::Placement& placement)
      : options_(options), layout_(layout), addresses_(placement.Addresses()) {}

  void Tokens(RankRun* rank) const {
    for (int64_t layer = record::kBeforeLayers; layer <= layout_.layers(); ++layer) {
      for (const Decision& held : layout_.ExpectedDecisions(rank->rank, {layer})) {
        std::vector<Site> sites = {Site::kMixer, Site::kRouter, Site::kChannels};
        if (layer == record::kBeforeLayers) sites = {Site::kEmbed};
        if (layer == layout_.layers()) sites = {Site::kFinalNorm};
        const bool wanted = layer < layout_.layers() || record::PositionOf(held.token) >= 2;
        for (const Site site : sites) {
          if (wanted) rank->bounds.push_back(Bound(held, site));
        }
        if (layer < 0 || layer == layout_.layers()) {
          if (layer == layout_.layers() && wanted) Logits(held.token, rank);
          continue;
        }
        Route(held, rank);
      }
    }
    const auto key = [](const auto& r) { return std::tie(r.layer, r.site, r.token); };
    std::sort(rank->bounds.begin(), rank->bounds.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  }

  void Executions(const std::vector<RankRun>& ranks, RankRun* rank) const {
    const Coordinates at = layout_.At(rank->rank);
    std::set<std::tuple<int16_t, int64_t, uint16_t, uint32_t, uint16_t>> seen;
    for (const RankRun& other : ranks) {
      if (!Meets(at, layout_.At(other.rank))) continue;
      for (const record::DispatchRecord& row : other.dispatches) {
        if (row.ep_rank == at[static_cast<size_t>(Dimension::kEp)]) {
          seen.emplace(row.layer, row.token, row.slot, row.step, row.local_slot);
        }
      }
    }
    for (const auto& [layer, token, slot, step, local_slot] : seen) {
      rank->executions.push_back({token, step, layer, local_slot, slot, 0, 0});
    }
  }

 private:
  bool Meets(const Coordinates& at, const Coordinates& from) const {
    for (size_t d = 0; d < kDimensions; ++d) {
      const auto dimension = static_cast<Dimension>(d);
      const auto& over = options_.expert_group_over;
      const bool free = dimension == Dimension::kEp || std::find(over.begin(), over.end(), dimension) != over.end();
      if (!free && at[d] != from[d]) return false;
    }
    return true;
  }

  static record::BoundRecord Bound(const Decision& held, Site site) {
    const Digest digest = Hash128(fmt::format("{} {} {}", held.layer, static_cast<int>(site), held.token));
    return {held.token, static_cast<int16_t>(held.layer), site, 0, static_cast<uint32_t>(kSyntheticHidden), digest};
  }

  void Logits(int64_t token, RankRun* rank) const {
    if (layout_.Carriers({layout_.layers(), token}).front() != rank->rank) return;
    const std::vector<float> row = LogitsOf(token);
    rank->bounds.push_back({token, static_cast<int16_t>(layout_.layers()), Site::kLogits, 0, kVocab,
                            Hash128(std::as_bytes(std::span(row)))});
  }

  void Route(const Decision& held, RankRun* rank) const {
    std::vector<record::RouteSlot> slots;
    const record::RouteHead head = SyntheticRoute(held, &slots);
    const auto step = static_cast<uint32_t>(record::PositionOf(held.token) / options_.step_tokens);
    if (held.layer == 0) rank->rows.push_back({held.token, step, 0, head.input, 0});
    rank->decisions.push_back({held.token, head.input, head.layer, 1, kSyntheticTopK,
                               record::DecisionDigest(SyntheticDomain(), head, slots)});
    rank->routes.top_k = kSyntheticTopK;
    rank->routes.heads.push_back(head);
    rank->routes.slots.insert(rank->routes.slots.end(), slots.begin(), slots.end());
    for (size_t i = 0; i < slots.size(); ++i) {
      const plan::ExpertAddress& to = addresses_[slots[i].expert];
      rank->dispatches.push_back({held.token, step, 0, head.layer, slots[i].expert, static_cast<uint16_t>(to.ep_rank),
                                  static_cast<uint16_t>(to.local_slot), static_cast<uint16_t>(i), 0, 0});
    }
  }

  const SyntheticOptions& options_;
  const TokenLayout& layout_;
  const std::vector<plan::ExpertAddress> addresses_;
};

}  // namespace

Digest SyntheticDomain() { return Hash128(std::string_view(kContract)); }

record::RouteHead SyntheticRoute(const Decision& decision, std::vector<record::RouteSlot>* slots) {
  const uint64_t number = Number(fmt::format("route {} {}", decision.layer, decision.token));
  const auto first = static_cast<uint16_t>(number % kSyntheticExperts);
  const auto second = static_cast<uint16_t>((first + 1 + number / 64 % (kSyntheticExperts - 1)) % kSyntheticExperts);
  const float high = 0.5F + static_cast<float>(number / 4096 % 100) / 256, low = high / 2;
  *slots = {{first, 0, 0.75F, high, high}, {second, 0, 0.25F, low, low}};
  return {decision.token, InputOf(decision.token), static_cast<int16_t>(decision.layer), kSyntheticTopK, low / 2, 0};
}

RecordedRun MakeSynthetic(const SyntheticOptions& options) {
  RecordedRun run;
  run.level = options.level;
  run.layout = LayoutOf(options);
  const int64_t groups = options.sizes[static_cast<size_t>(Dimension::kEp)];
  const plan::Placement placement =
      plan::Placement::FromEpConfig(kSyntheticExperts, groups, options.strategy, {"", options.semantics}).value();
  run.run = RunOf(options, placement.version);
  run.placements.push_back(placement.PlanFragment());
  const Gate gate = ReadTokenLayout(run.layout, run.run, &run.tokens);
  CHECK_MSG(!gate, gate ? gate->message : "");
  for (int64_t layer = 0; layer < kSyntheticLayers; ++layer) run.moe_layers.push_back(layer);
  run.delta_layers.push_back(kSyntheticDelta);
  const RankMaker maker(options, run.tokens, placement);
  for (int64_t rank = 0; rank < run.tokens.world; ++rank) {
    RankRun one;
    one.folder = one.rank = rank;
    one.env = {{"schema", "trivet.rank.v1"},
               {"group", kGroup},
               {"rank", rank},
               {"ranks", run.tokens.world},
               {"chosen_among", kSyntheticExperts}};
    one.weights = WeightsOf(run.tokens, placement, rank);
    one.collectives = CollectivesOf(run.tokens, rank);
    maker.Tokens(&one);
    run.ranks.push_back(std::move(one));
  }
  for (RankRun& rank : run.ranks) maker.Executions(run.ranks, &rank);
  for (const RequestFacts& request : run.tokens.requests) {
    for (int64_t position = 2; position < request.computed; ++position) {
      const int64_t token = record::GlobalToken(request.request, position);
      run.logits[token] = LogitsOf(token);
    }
  }
  return run;
}

}  // namespace trivet::proof
