// SPDX-License-Identifier: Apache-2.0
#include "comm/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/env.h"
#include "base/json.h"
#include "base/str.h"
#include "comm/group.h"
#include "comm/peer_rules.h"

namespace trivet::comm {
namespace {

// Changes whenever a form of a sum does, so that older measurements do not count.
constexpr const char* kAlgorithms = "sums 1";
constexpr const char* kFormat = "trivet tuning 1";
constexpr size_t kMostResults = 4096;

// Through the host, a second wait costs more than the reads it saves below this: a wait between running ranks takes a
// few microseconds, in which one core reads about 32 kB.
constexpr int64_t kHostOneShotBytes = 32768;

Error Wrong(const std::string& path, const std::string& sentence) {
  return MakeError(Code::kInvalid,
                   fmt::format("{}: {}; make it anew with trivet tune, or give --tuning none", path, sentence));
}

Result<int64_t> ReadBytes(const Json& entry, const char* type, const Way& way, const std::string& path) {
  const Json& value = Member(Member(entry, "one_shot_bytes"), type);
  const int64_t most = MostOneShotBytes(way);
  if (IsInt64(value) && value.get<int64_t>() >= 0 && value.get<int64_t>() <= most) return value.get<int64_t>();
  return Wrong(path, fmt::format("one_shot_bytes.{} of {}: expected 0 to {}, found {}", type, way.Name(), most,
                                 Quote(DumpJson(value))));
}

Result<TunedWay> ReadResult(const Json& entry, const std::string& path) {
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
  TRY_ASSIGN(result.one_shot.int64_bytes, ReadBytes(entry, "int64", result.way, path));
  TRY_ASSIGN(result.one_shot.float32_bytes, ReadBytes(entry, "float32", result.way, path));
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
  const Json& results = Member(file, "results");
  if (!results.is_array() || results.size() > kMostResults) {
    return Wrong(path, fmt::format("results: expected a list of at most {}, found none", kMostResults));
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
    results.push_back(
        {{"machine", result.machine},
         {"backend", BackendName(result.way.backend)},
         {"transport", result.way.peer ? "peer" : "host"},
         {"ranks", result.way.ranks},
         {"one_shot_bytes", {{"int64", result.one_shot.int64_bytes}, {"float32", result.one_shot.float32_bytes}}}});
  }
  return WriteTextFile(path, DumpJson({{"format", kFormat}, {"results", results}}, 2) + "\n");
}

CrossoverChoice Tuning::Choose(const std::string& machine, const Way& way) const {
  for (const TunedWay& result : results_) {
    if (result.machine == machine && result.way == way) return {result.one_shot, true, path_};
  }
  std::string reason = why_;
  if (!path_.empty()) {
    reason =
        fmt::format("{} has nothing for {} on this machine ({}); trivet tune measures it", path_, way.Name(), machine);
  }
  return {BuiltInCrossovers(way), false, reason};
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

}  // namespace trivet::comm
