// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "base/str.h"
#include "cli/commands.h"
#include "kernels/registry.h"

namespace trivet::cli {

Run AddDoctor(CLI::App* app) {
  auto rows = std::make_shared<std::string>();  // shared_ptr: CLI11 keeps a pointer into it until the command has run
  app->add_option("--rows", *rows, "kernel rows: a suffix such as ref, avx2 or avx512");
  return [rows]() -> Status {
    TRY_ASSIGN(const kernels::Kernels chosen, kernels::SelectKernels(kernels::CpuTarget(), {*rows, {}}));
    const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
    std::printf("cores            %u\nmemory           %s\n\n%-16s %-24s %s\n", std::thread::hardware_concurrency(),
                HumanBytes(memory).c_str(), "kernel family", "chosen row", "rows this machine runs");
    const std::vector<std::string> names = chosen.Names();
    const std::vector<std::vector<std::string>> runnable = kernels::RunnableRows(kernels::CpuTarget());
    for (size_t i = 0; i < names.size(); ++i) {
      std::string all;
      for (const std::string& row : runnable[i]) all += (all.empty() ? "" : ", ") + row;
      std::printf("%-16s %-24s %s\n", names[i].substr(0, names[i].find('/')).c_str(), names[i].c_str(), all.c_str());
    }
    return {};
  };
}

}  // namespace trivet::cli
