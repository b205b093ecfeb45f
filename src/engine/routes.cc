// SPDX-License-Identifier: Apache-2.0
#include "engine/routes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/str.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/writer.h"
#include "engine/evidence.h"
#include "proof/gates.h"

namespace trivet::engine {
namespace {

std::string LayersText(const std::vector<int64_t>& layers) { return fmt::format("{}", fmt::join(layers, ",")); }

std::string TextOf(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

// What the file has of one request.
struct RoutesOfRequest {
  std::vector<int32_t> tokens;
  std::vector<int32_t> experts;  // [T, L, K]
  std::vector<float> weights;
};

std::map<int64_t, RoutesOfRequest> RoutesOf(const proof::RecordedRun& run, size_t top_k) {
  std::map<int64_t, RoutesOfRequest> all;
  const size_t layers = run.moe_layers.size();
  for (const proof::RequestFacts& request : run.tokens.requests) {
    if (request.computed == 0) continue;
    RoutesOfRequest& routes = all[request.request];
    const auto tokens = static_cast<size_t>(request.computed);
    routes.tokens.resize(tokens);
    routes.experts.resize(tokens * layers * top_k);
    routes.weights.resize(routes.experts.size());
  }
  for (const proof::RankRun& rank : run.ranks) {
    for (size_t i = 0; i < rank.routes.heads.size(); ++i) {
      const record::RouteHead& head = rank.routes.heads[i];
      if (head.token == record::kPadding) continue;
      RoutesOfRequest& routes = all.at(record::RequestOf(head.token));
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

// Reads a file that forces choices.
class RouteReader {
 public:
  RouteReader(const std::string& path, const OpenedModel& model)
      : path_(path), geometry_(model.geometry), config_(ConfigDigest(model)) {
    for (size_t i = 0; i < geometry_.layers.size(); ++i) {
      const bool moe = geometry_.layers[i].channel_mixer == plan::ChannelMixer::kMoe;
      if (moe) table_.layers.push_back(static_cast<int64_t>(i));
    }
    table_.top_k = geometry_.moe.top_k;
  }

  Result<model::RouteTable> Read() {
    TRY_ASSIGN(file_, checkpoint::OpenSafetensors(path_));
    TRY(CheckMetadata());
    for (const checkpoint::TensorInfo& info : file_->header.tensors) TRY(ReadTensor(info));
    for (const auto& [request, routes] : table_.requests) {
      if (routes.tokens.empty() || routes.experts.empty()) {
        return Wrong(fmt::format("tokens.{0} and experts.{0}", request), "one of them");
      }
      TRY(CheckRequest(request, routes));
    }
    if (table_.requests.empty()) return Wrong("tokens.R and experts.R of a request R", "none");
    return std::move(table_);
  }

 private:
  Error Wrong(const std::string& expected, const std::string& found) const {
    return MakeError(Code::kInvalid, fmt::format("{}: expected {}, found {}; export the routes of a run of this model",
                                                 path_, expected, found));
  }

  Status CheckMetadata() const {
    const std::string layers = LayersText(table_.layers);
    std::string found = "none";
    for (const auto& [key, value] : file_->header.metadata) {
      if (key == "layers") found = value;
      if (key == "config" && value != config_) {
        return Wrong(fmt::format("routes of a model whose config is {}", config_), Quote(value));
      }
    }
    if (found == layers) return {};
    return Wrong(fmt::format("metadata \"layers\" {}", layers), Quote(found));
  }

  Status ReadTensor(const checkpoint::TensorInfo& info) {
    const size_t dot = info.name.find('.');
    const std::string kind = info.name.substr(0, dot);
    const Result<int64_t> request = ParseInt(dot == std::string::npos ? "" : info.name.substr(dot + 1), info.name);
    const auto layers = static_cast<int64_t>(table_.layers.size());
    if (!request.ok() || *request < 0 || *request > INT32_MAX ||
        (kind != "tokens" && kind != "experts" && kind != "weights")) {
      return Wrong("tensors tokens.R, experts.R and weights.R", Quote(info.name));
    }
    if (kind == "weights") return {};
    const int64_t tokens = info.shape.empty() ? 0 : info.shape[0];
    const std::vector<int64_t> shape =
        kind == "tokens" ? std::vector<int64_t>{tokens} : std::vector<int64_t>{tokens, layers, table_.top_k};
    if (info.dtype != tensor::DType::kI32 || info.shape != shape || tokens == 0) {
      return Wrong(fmt::format("{} of int32 [{}]", info.name,
                               kind == "tokens" ? "T" : fmt::format("T, {}, {}", layers, table_.top_k)),
                   checkpoint::ShapeText(info.shape));
    }
    model::RequestRoutes& routes = table_.requests[*request];
    std::vector<int32_t>& values = kind == "tokens" ? routes.tokens : routes.experts;
    values.resize(static_cast<size_t>(info.bytes) / sizeof(int32_t));
    const auto bytes = std::as_writable_bytes(std::span(values));
    TRY(file_->file.ReadAt(info.offset, bytes));
    const Digest content = Hash128(std::span<const std::byte>(bytes));
    const uint64_t chained[] = {table_.content.low, table_.content.high, Hash128(info.name).low, content.low,
                                content.high};
    table_.content = Hash128(std::as_bytes(std::span(chained)));
    return {};
  }

  Status CheckRequest(int64_t request, const model::RequestRoutes& routes) const {
    const auto k = static_cast<size_t>(table_.top_k), row = k * table_.layers.size();
    if (routes.tokens.size() * row != routes.experts.size()) {
      return Wrong(fmt::format("as many tokens in tokens.{0} as in experts.{0}", request),
                   fmt::format("{} and {}", routes.tokens.size(), routes.experts.size() / row));
    }
    for (const int32_t token : routes.tokens) {
      if (token < 0 || token >= geometry_.vocab) {
        return Wrong(fmt::format("tokens.{}: token ids from 0 to {}", request, geometry_.vocab - 1),
                     fmt::format("{}", token));
      }
    }
    for (size_t at = 0; at < routes.experts.size(); at += k) {
      const std::span<const int32_t> chosen = std::span(routes.experts).subspan(at, k);
      const bool free = std::all_of(chosen.begin(), chosen.end(), [](int32_t expert) { return expert == -1; });
      std::set<int32_t> apart(chosen.begin(), chosen.end());
      const bool fits = apart.size() == k && *apart.begin() >= 0 && *apart.rbegin() < geometry_.moe.experts;
      if (free || fits) continue;
      return Wrong(fmt::format("experts.{}, position {}, layer {}: {} different experts from 0 to {}, or -1 for all",
                               request, at / row, table_.layers[at % row / k], k, geometry_.moe.experts - 1),
                   fmt::format("{}", fmt::join(chosen, ", ")));
    }
    return {};
  }

  const std::string& path_;
  const plan::Geometry& geometry_;
  const std::string config_;
  std::optional<checkpoint::SafetensorsFile> file_;
  model::RouteTable table_;
};

}  // namespace

Result<std::unique_ptr<const model::RouteTable>> ReadRoutes(const std::string& path, const OpenedModel& model,
                                                            Backend backend) {
  if (!model.geometry.Uses(plan::ChannelMixer::kMoe)) {
    return MakeError(Code::kUnsupported,
                     fmt::format("--routes: expected a model with routed experts, found {}; leave it out", model.name));
  }
  if (backend != Backend::kCpu) {
    return MakeError(Code::kUnsupported,
                     "--routes: expected ranks on the processor, found them on GPUs; use --backend cpu");
  }
  TRY_ASSIGN(model::RouteTable table, RouteReader(path, model).Read());
  return std::make_unique<const model::RouteTable>(std::move(table));
}

Result<ExportedRoutes> ExportRoutes(const proof::Files& files, const std::string& what, const std::string& path) {
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
  const std::map<int64_t, RoutesOfRequest> all = RoutesOf(run, top_k);
  const auto layers = static_cast<int64_t>(run.moe_layers.size());
  std::vector<checkpoint::TensorDecl> decls;
  for (const auto& [request, routes] : all) {
    const auto tokens = static_cast<int64_t>(routes.tokens.size());
    const std::vector<int64_t> shape = {tokens, layers, static_cast<int64_t>(top_k)};
    decls.push_back({fmt::format("tokens.{}", request), tensor::DType::kI32, {tokens}});
    decls.push_back({fmt::format("experts.{}", request), tensor::DType::kI32, shape});
    decls.push_back({fmt::format("weights.{}", request), tensor::DType::kF32, shape});
  }
  const Json& identity = Member(run.run, "identity");
  TRY_ASSIGN(checkpoint::SafetensorsWriter writer,
             checkpoint::SafetensorsWriter::Create(path, decls,
                                                   {{"layers", LayersText(run.moe_layers)},
                                                    {"contract", TextOf(identity, "contract")},
                                                    {"config", TextOf(identity, "config")}}));
  ExportedRoutes exported{all.size(), 0, run.moe_layers.size()};
  for (const auto& [request, routes] : all) {
    exported.tokens += routes.tokens.size();
    TRY(writer.Append(std::as_bytes(std::span(routes.tokens))));
    TRY(writer.Append(std::as_bytes(std::span(routes.experts))));
    TRY(writer.Append(std::as_bytes(std::span(routes.weights))));
  }
  TRY(writer.Finish());
  return exported;
}

}  // namespace trivet::engine
