// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "base/str.h"
#include "cli/bench_group.h"
#include "cli/commands.h"
#include "engine/rank.h"

namespace trivet::cli {

namespace {

struct Flags {
  std::string rows, backend = "cpu", tuning = "auto";
};

// What was measured here, way by way.
void PrintTuning(const comm::Tuning& tuning, const device::Device& device) {
  const std::string machine = comm::TuningFingerprint(device);
  const std::vector<comm::TunedWay> ways = tuning.Of(machine);
  if (ways.empty()) {
    std::printf("sums             forms cross where built in: %s\n",
                tuning.path().empty()
                    ? tuning.why().c_str()
                    : fmt::format("{} has nothing for this machine ({})", tuning.path(), machine).c_str());
  }
  for (const comm::TunedWay& of : ways) {
    std::printf("sums             %s: one-shot up to %ld bytes of int64, %ld of float32 (%s)\n", of.way.Name().c_str(),
                of.one_shot.int64_bytes, of.one_shot.float32_bytes, tuning.path().c_str());
    if (of.weighted.from_bytes == INT64_MAX) continue;
    std::printf("sums             %s: by weights %s from %ld bytes\n", of.way.Name().c_str(),
                fmt::format("{}", fmt::join(of.weighted.weights.All(), ", ")).c_str(), of.weighted.from_bytes);
  }
}

Status Print(const Flags& flags) {
  TRY_ASSIGN(const comm::Tuning tuning, comm::Tuning::Open(flags.tuning));
  TRY_ASSIGN(const Backend backend, ParseBackend(flags.backend));
  TRY_ASSIGN(const device::Device device, device::Device::Open(backend, 0));
  const kernels::Target target = engine::TargetOf(device);
  TRY_ASSIGN(const kernels::Kernels chosen, kernels::SelectKernels(target, {flags.rows, {}}));
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::printf("cores            %u\nmemory           %s\n", std::thread::hardware_concurrency(),
              HumanBytes(memory).c_str());
  if (backend != Backend::kCpu) {
    std::printf("device 0         %s, compute capability %.1f, %s free\n", device.name(),
                static_cast<double>(device.level()) / 10, HumanBytes(static_cast<double>(device.FreeBytes())).c_str());
  }
  PrintTuning(tuning, device);
  std::printf("\n%-16s %-24s %s\n", "kernel family", "chosen row", "rows this machine runs");
  const std::vector<std::string> names = chosen.Names();
  const std::vector<std::vector<std::string>> runnable = kernels::RunnableRows(target);
  for (size_t i = 0; i < names.size(); ++i) {
    std::string all;
    for (const std::string& row : runnable[i]) all += (all.empty() ? "" : ", ") + row;
    std::printf("%-16s %-24s %s\n", names[i].substr(0, names[i].find('/')).c_str(), names[i].c_str(), all.c_str());
  }
  return {};
}

}  // namespace

Run AddDoctor(CLI::App* app) {
  auto flags = std::make_shared<Flags>();  // shared_ptr: CLI11 keeps pointers into it until the command has run
  app->add_option("--rows", flags->rows, "kernel rows: a suffix such as ref, avx2, avx512 or avx512vnni");
  app->add_option("--backend", flags->backend, "cpu or cuda");
  AddTuning(app, &flags->tuning);
  return [flags] { return Print(*flags); };
}

}  // namespace trivet::cli
