// SPDX-License-Identifier: Apache-2.0
#include "engine/routes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "checkpoint/writer.h"
#include "proof/gates.h"

namespace trivet::engine {
namespace {

// What the file has of one request.
struct RequestRoutes {
  std::vector<int32_t> tokens;
  std::vector<int32_t> experts;  // [T, L, K]
  std::vector<float> weights;
};

std::map<int64_t, RequestRoutes> RoutesOf(const proof::RecordedRun& run, size_t top_k) {
  std::map<int64_t, RequestRoutes> all;
  const size_t layers = run.moe_layers.size();
  for (const proof::RequestFacts& request : run.tokens.requests) {
    if (request.computed == 0) continue;
    RequestRoutes& routes = all[request.request];
    const auto tokens = static_cast<size_t>(request.computed);
    routes.tokens.resize(tokens);
    routes.experts.resize(tokens * layers * top_k);
    routes.weights.resize(routes.experts.size());
  }
  for (const proof::RankRun& rank : run.ranks) {
    for (size_t i = 0; i < rank.routes.heads.size(); ++i) {
      const record::RouteHead& head = rank.routes.heads[i];
      if (head.token == record::kPadding) continue;
      RequestRoutes& routes = all.at(record::RequestOf(head.token));
      const auto token = static_cast<size_t>(record::PositionOf(head.token));
      const auto layer = static_cast<size_t>(
          std::lower_bound(run.moe_layers.begin(), run.moe_layers.end(), head.layer) - run.moe_layers.begin());
      routes.tokens[token] = head.input;
      const std::span<const record::RouteSlot> slots = rank.routes.Slots(i);
      for (size_t slot = 0; slot < top_k; ++slot) {
        const size_t at = (token * layers + layer) * top_k + slot;
        routes.experts[at] = slots[slot].expert;
        routes.weights[at] = slots[slot].weight;
      }
    }
  }
  return all;
}

}  // namespace

Status ExportRoutes(const proof::Files& files, const std::string& what, const std::string& path) {
  proof::RecordedRun run;
  if (const proof::Gate gate = proof::CheckRun(files, &run)) {
    return MakeError(Code::kInvalid,
                     fmt::format("{}: expected a run that stands by itself, found {}: {}; record it anew", what,
                                 proof::VerdictName(gate->verdict), gate->message));
  }
  if (run.level < record::Level::kRows || run.moe_layers.empty()) {
    return MakeError(Code::kUnsupported,
                     fmt::format("{}: expected a run of a model with experts that has its decisions, found level {}; "
                                 "record it with --proof rows",
                                 what, record::LevelName(run.level)));
  }
  const size_t top_k = run.ranks[0].routes.top_k;
  const std::map<int64_t, RequestRoutes> all = RoutesOf(run, top_k);
  const auto layers = static_cast<int64_t>(run.moe_layers.size());
  std::vector<checkpoint::TensorDecl> decls;
  for (const auto& [request, routes] : all) {
    const auto tokens = static_cast<int64_t>(routes.tokens.size());
    const std::vector<int64_t> shape = {tokens, layers, static_cast<int64_t>(top_k)};
    decls.push_back({fmt::format("tokens.{}", request), tensor::DType::kI32, {tokens}});
    decls.push_back({fmt::format("experts.{}", request), tensor::DType::kI32, shape});
    decls.push_back({fmt::format("weights.{}", request), tensor::DType::kF32, shape});
  }
  const std::string contract = Member(Member(run.run, "identity"), "contract").get<std::string>();
  TRY_ASSIGN(checkpoint::SafetensorsWriter writer,
             checkpoint::SafetensorsWriter::Create(
                 path, decls, {{"layers", fmt::format("{}", fmt::join(run.moe_layers, ","))}, {"contract", contract}}));
  for (const auto& [request, routes] : all) {
    TRY(writer.Append(std::as_bytes(std::span(routes.tokens))));
    TRY(writer.Append(std::as_bytes(std::span(routes.experts))));
    TRY(writer.Append(std::as_bytes(std::span(routes.weights))));
  }
  return writer.Finish();
}

}  // namespace trivet::engine
