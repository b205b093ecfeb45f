// SPDX-License-Identifier: Apache-2.0
#include "comm/tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "base/json.h"
#include "base/str.h"
#include "comm/group.h"
#include "comm/peer_rules.h"

namespace trivet::comm {
namespace {

// Changes whenever a form of a sum does, so that older measurements do not count.
constexpr const char* kAlgorithms = "sums 2";
constexpr const char* kFormat = "trivet tuning 1";
constexpr size_t kMostResults = 4096;

// Through the host, a second wait costs more than the reads it saves below this: a wait between running ranks takes a
// few microseconds, in which one core reads about 32 kB.
constexpr int64_t kHostOneShotBytes = 32768;

Error Wrong(const std::string& path, const std::string& sentence) {
  return MakeError(Code::kInvalid,
                   fmt::format("{}: {}; delete it and run trivet tune, or give --tuning none", path, sentence));
}

// A border between forms of sums, which is one of the sizes measured, of [least, most], or 0 where that is one.
Result<int64_t> ReadBorder(const Json& value, const std::string& what, bool none, std::pair<int64_t, int64_t> range,
                           const std::string& path) {
  const auto [least, most] = range;
  const int64_t border = IsInt64(value) ? value.get<int64_t>() : -1;
  if ((none && border == 0) || (border >= least && border <= most)) return border;
  return Wrong(path, fmt::format("{}: expected {}{} to {} bytes, which is what is measured, found {}", what,
                                 none ? "0, or " : "", least, most, Quote(DumpJson(value))));
}

Result<int64_t> ReadOneShot(const Json& entry, const char* type, const Way& way, const std::string& path) {
  return ReadBorder(Member(Member(entry, "one_shot_bytes"), type),
                    fmt::format("one_shot_bytes.{} of {}", type, way.Name()), true,
                    {kShortestTuned, MostOneShotBytes(way)}, path);
}

// Whether WeightsFor gives such weights: rounded shares of kMost that are not all alike, of three ranks or more.
bool MeasurableWeights(std::span<const int64_t> weights) {
  const auto ranks = static_cast<int64_t>(weights.size());
  const bool alike = std::equal(weights.begin() + 1, weights.end(), weights.begin());
  const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  return ranks > 2 && !alike && 2 * std::abs(sum - Weights::kMost) <= ranks;
}

// Whether `object` has the keys of a list and no others. A misspelt one would change what runs do, and say nothing.
Status CheckKeys(const Json& object, std::span<const std::string_view> keys, const std::string& what,
                 const std::string& path) {
  if (!object.is_object())
    return Wrong(path, fmt::format("{}: expected an object, found {}", what, Quote(DumpJson(object))));
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return Wrong(path, fmt::format("{}: expected keys {}, found \"{}\"", what, fmt::join(keys, ", "), Quote(key)));
  }
  return {};
}

Result<WeightedShares> ReadWeighted(const Json& entry, const Way& way, const std::string& path) {
  constexpr std::string_view kKeys[] = {"weights", "from_bytes"};
  WeightedShares shares{Weights::Equal(way.ranks)};
  const Json& weighted = Member(entry, "weighted");
  if (weighted.is_null()) return shares;
  TRY(CheckKeys(weighted, kKeys, "weighted", path));
  const Json &list = Member(weighted, "weights"), &from = Member(weighted, "from_bytes");
  std::vector<int64_t> weights;
  for (const Json& weight : list) {
    if (!IsInt64(weight) || weight.get<int64_t>() < 0 || weight.get<int64_t>() > Weights::kMost) break;
    weights.push_back(weight.get<int64_t>());
  }
  if (!list.is_array() || weights.size() != list.size() || std::ssize(weights) != way.ranks ||
      !MeasurableWeights(weights)) {
    return Wrong(path, fmt::format("weighted.weights of {}: expected a share of {} for each of three ranks or more, "
                                   "which are not all alike and {} together, found {}",
                                   way.Name(), Weights::kMost, Weights::kMost, Quote(DumpJson(list))));
  }
  TRY_ASSIGN(shares.from_bytes, ReadBorder(from, fmt::format("weighted.from_bytes of {}", way.Name()), false,
                                           {*std::begin(kLongSums), *std::rbegin(kLongSums)}, path));
  shares.weights = Weights::Of(weights);
  return shares;
}

Result<TunedWay> ReadResult(const Json& entry, const std::string& path) {
  constexpr std::string_view kKeys[] = {"machine", "backend", "transport", "ranks", "one_shot_bytes", "weighted"};
  constexpr std::string_view kTypes[] = {"int64", "float32"};
  TRY(CheckKeys(entry, kKeys, "results", path));
  TRY(CheckKeys(Member(entry, "one_shot_bytes"), kTypes, "one_shot_bytes", path));
  TunedWay result;
  TRY_ASSIGN(result.machine, GetString(entry, "machine", "", path));
  TRY_ASSIGN(const std::string backend, GetString(entry, "backend", "", path));
  TRY_ASSIGN(const std::string transport, GetString(entry, "transport", "", path));
  TRY_ASSIGN(result.way.ranks, GetInt(entry, "ranks", 0, path));
  const bool cuda = backend == BackendName(Backend::kCuda);
  if (!cuda && backend != BackendName(Backend::kCpu)) {
    return Wrong(path, fmt::format("backend: expected cpu or cuda, found \"{}\"", Quote(backend)));
  }
  if (transport != "host" && !(cuda && transport == "peer")) {
    return Wrong(path, fmt::format("transport of {}: expected host, or peer between GPUs, found \"{}\"", backend,
                                   Quote(transport)));
  }
  if (result.machine.empty()) return Wrong(path, "machine: expected a text, found none");
  if (result.way.ranks < 2 || result.way.ranks > kMaxGroup) {
    return Wrong(path, fmt::format("ranks: expected 2 to {}, found {}", kMaxGroup, result.way.ranks));
  }
  result.way.backend = cuda ? Backend::kCuda : Backend::kCpu;
  result.way.peer = transport == "peer";
  TRY_ASSIGN(result.one_shot.int64_bytes, ReadOneShot(entry, "int64", result.way, path));
  TRY_ASSIGN(result.one_shot.float32_bytes, ReadOneShot(entry, "float32", result.way, path));
  TRY_ASSIGN(result.weighted, ReadWeighted(entry, result.way, path));
  return result;
}

}  // namespace

std::string Way::Name() const {
  return fmt::format("{} ranks on {} by {}", ranks, BackendName(backend), peer ? "peer" : "host");
}

Crossovers BuiltInCrossovers(const Way& way) {
  const int64_t bytes = way.peer ? OneShotBytes(way.ranks) : kHostOneShotBytes;
  return {bytes, bytes};
}

int64_t MostOneShotBytes(const Way& way) {
  return way.peer ? kPacketWords * static_cast<int64_t>(sizeof(int64_t)) : kHostPieceBytes;
}

std::string TuningFingerprint(const device::Device& device) {
  return fmt::format("{}, {}", kAlgorithms, device.DescribeMachine());
}

std::string Tuning::DefaultPath() {
  const std::string cache = UserCacheDir();
  return cache.empty() ? "" : cache + "/trivet/tuning.json";
}

Result<Tuning> Tuning::Open(const std::string& flag) {
  if (flag == "none") return Tuning("--tuning none");
  if (flag != "auto") return Read(flag);
  const std::string path = DefaultPath();
  std::error_code unreadable;
  if (path.empty() || !std::filesystem::exists(path, unreadable)) return Tuning("no file; trivet tune makes one");
  return Read(path);
}

Result<Tuning> Tuning::Read(const std::string& path) {
  TRY_ASSIGN(const Json file, ReadJsonFile(path, {.max_bytes = int64_t{4} << 20, .max_depth = 8}));
  TRY_ASSIGN(const std::string format, GetString(file, "format", "", path));
  if (format != kFormat) {
    return Wrong(path, fmt::format("format: expected \"{}\", found \"{}\"", kFormat, Quote(format)));
  }
  constexpr std::string_view kKeys[] = {"format", "results"};
  TRY(CheckKeys(file, kKeys, "the file", path));
  const Json& results = Member(file, "results");
  if (!results.is_array() || results.size() > kMostResults) {
    return Wrong(path, fmt::format("results: expected a list of at most {}, found {}", kMostResults,
                                   results.is_array()  ? fmt::format("{} of them", results.size())
                                   : results.is_null() ? "none"
                                                       : Quote(DumpJson(results), 80)));
  }
  Tuning tuning;
  tuning.path_ = path;
  for (const Json& entry : results) {
    TRY_ASSIGN(const TunedWay result, ReadResult(entry, path));
    if (tuning.Choose(result.machine, result.way).measured) {
      return Wrong(path, fmt::format("results: expected {} of a machine once, found it twice", result.way.Name()));
    }
    tuning.Put(result);
  }
  return tuning;
}

void Tuning::Put(const TunedWay& result) {
  CHECK(result.weighted.from_bytes == INT64_MAX || result.weighted.weights.ranks() == result.way.ranks);
  const auto found = std::find_if(results_.begin(), results_.end(), [&](const TunedWay& earlier) {
    return earlier.machine == result.machine && earlier.way == result.way;
  });
  if (found == results_.end()) {
    results_.push_back(result);
  } else {
    *found = result;
  }
}

Status Tuning::Write(const std::string& path) const {
  Json results = Json::array();
  for (const TunedWay& result : results_) {
    Json entry = {
        {"machine", result.machine},
        {"backend", BackendName(result.way.backend)},
        {"transport", result.way.peer ? "peer" : "host"},
        {"ranks", result.way.ranks},
        {"one_shot_bytes", {{"int64", result.one_shot.int64_bytes}, {"float32", result.one_shot.float32_bytes}}}};
    if (result.weighted.from_bytes != INT64_MAX) {
      entry["weighted"] = {{"weights", result.weighted.weights.All()}, {"from_bytes", result.weighted.from_bytes}};
    }
    results.push_back(std::move(entry));
  }
  return WriteTextFile(path, DumpJson({{"format", kFormat}, {"results", results}}, 2) + "\n");
}

CrossoverChoice Tuning::Choose(const std::string& machine, const Way& way) const {
  for (const TunedWay& result : results_) {
    if (result.machine == machine && result.way == way) return {result.one_shot, result.weighted, true, path_};
  }
  std::string reason = why_;
  if (!path_.empty()) {
    reason =
        fmt::format("{} has nothing for {} on this machine ({}); trivet tune measures it", path_, way.Name(), machine);
  }
  return {BuiltInCrossovers(way), {Weights::Equal(way.ranks)}, false, reason};
}

std::vector<TunedWay> Tuning::Of(const std::string& machine) const {
  std::vector<TunedWay> of;
  std::copy_if(results_.begin(), results_.end(), std::back_inserter(of),
               [&](const TunedWay& result) { return result.machine == machine; });
  return of;
}

int64_t BestCrossover(std::span<const FormTimes> times) {
  double loss = 0;  // of the border below all sizes, as the logarithm of the product
  double least = 0;
  int64_t best = 0;
  for (const FormTimes& time : times) {
    loss += std::log(time.one_shot_us) - std::log(time.two_shot_us);
    if (loss > least) continue;
    least = loss;
    best = time.bytes;
  }
  return best;
}

int64_t WeightedFrom(std::span<const WeightedTimes> times) {
  int64_t from = INT64_MAX;
  for (auto time = times.rbegin(); time != times.rend() && time->weighted_us <= 0.95 * time->equal_us; ++time) {
    from = time->bytes;
  }
  return from;
}

Weights WeightsFor(std::span<const double> rates) {
  const auto ranks = static_cast<int64_t>(rates.size());
  const double top = *std::max_element(rates.begin(), rates.end());
  if (ranks < 3 || *std::min_element(rates.begin(), rates.end()) > 0.9 * top) return Weights::Equal(ranks);
  // Ranks with shares are done together, after a time of t: t * rate = 1 + (ranks - 2) * share. All shares are 1, which
  // gives t; whose share would be below 0 then has none, from the slowest on.
  std::vector<double> descending(rates.begin(), rates.end());
  std::sort(descending.begin(), descending.end(), std::greater<>());
  double sum = std::accumulate(descending.begin(), descending.end(), 0.0), t = 0;
  for (int64_t sharing = ranks; sharing > 0; --sharing) {
    const double slowest = descending[static_cast<size_t>(sharing - 1)];
    t = static_cast<double>(ranks - 2 + sharing) / sum;
    if (t * slowest >= 1) break;
    sum -= slowest;
  }
  std::vector<int64_t> weights;
  for (const double rate : rates) {
    const double share = std::max(0.0, (t * rate - 1) / static_cast<double>(ranks - 2));
    weights.push_back(std::llround(share * static_cast<double>(Weights::kMost)));
  }
  return Weights::Of(weights);
}

}  // namespace trivet::comm
