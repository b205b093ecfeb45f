// SPDX-License-Identifier: Apache-2.0
// Loading a shard takes the memory of the shard and of two staging buffers, however large the checkpoint is.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "engine/load.h"
#include "plan/layout.h"
#include "tests/io/temp_dir.h"
#include "tests/support/model_runs.h"
#include "tests/support/peak_memory.h"
#include "tests/support/synthetic_model.h"

namespace trivet {
namespace {

// Besides shard and staging: the list of pieces (about 100 bytes each), the reader's stack, allocator rounding.
constexpr int64_t kSlackBytes = int64_t{1} << 20;

struct Measured {
  int64_t growth = 0;  // of the peak while loading
  int64_t shard = 0;   // bytes of the loaded tensors, each in whole pages
};

// Loads rank 1 of `layout` in a process of its own, whose peak nothing else has raised.
Measured MeasureLoading(const engine::OpenedModel& model, const plan::Layout& layout) {
  int pipe_ends[2];
  CHECK(::pipe(pipe_ends) == 0);
  const int child = ::fork();
  CHECK(child >= 0);
  Measured measured;
  if (child == 0) {
    const plan::ShardMap map = plan::MakeShardMap(model.geometry, layout, 1, model.names);
    ThreadPool pool(2);
    const int64_t before = support::PeakBytes();
    const Result<model::LoadedTensors> tensors = engine::LoadShard(model, map, {{}, &pool}, {}, {});
    measured.growth = support::PeakBytes() - before;
    if (!tensors.ok() || before < 0) ::_exit(1);
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    for (const auto& [name, tensor] : *tensors) measured.shard += (tensor.buffer.bytes() + page - 1) / page * page;
    ::_exit(::write(pipe_ends[1], &measured, sizeof measured) == sizeof measured ? 0 : 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(::read(pipe_ends[0], &measured, status == 0 ? sizeof measured : 0), status == 0 ? sizeof measured : 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  return measured;
}

TEST(LoadingMemory, IsTheShardAndTwoStagingBuffers) {
  if (!support::kMemoryIsMeasurable) GTEST_SKIP() << "a sanitizer keeps freed memory";
  support::SyntheticModel extents;
  extents.hidden = 1024;
  extents.experts = 32;
  extents.expert_width = 384;
  extents.shared_width = 384;
  extents.vocab = 4096;
  extents.files = 2;
  const TempDir dir;
  const Status written = support::WriteSyntheticModel(extents, dir.Path());
  ASSERT_TRUE(written.ok()) << written.error().message;
  const engine::OpenedModel model = support::Open(dir.Path());
  EXPECT_GT(model.checkpoint.total_bytes(), int64_t{300} << 20);
  for (const char* experts : {"whole", "width"}) {
    plan::LayoutOptions options;
    options.ranks = 3;
    options.cuts["experts"] = experts;
    const Result<plan::Layout> layout = plan::MakeLayout(model.geometry, options);
    ASSERT_TRUE(layout.ok()) << layout.error().message;
    const Measured measured = MeasureLoading(model, *layout);
    std::printf(
        "experts=%s: checkpoint %.1f MB, shard %.1f MB, peak growth %.1f MB, over the shard %.2f MB of %.2f MB\n",
        experts, static_cast<double>(model.checkpoint.total_bytes()) * 1e-6, static_cast<double>(measured.shard) * 1e-6,
        static_cast<double>(measured.growth) * 1e-6, static_cast<double>(measured.growth - measured.shard) * 1e-6,
        static_cast<double>(2 * engine::kStagingBytes + kSlackBytes) * 1e-6);
    EXPECT_LT(measured.shard, model.checkpoint.total_bytes() / 2);
    EXPECT_LE(measured.growth, measured.shard + 2 * engine::kStagingBytes + kSlackBytes);
    // All of it was written, so the measurement saw it.
    EXPECT_GE(measured.growth, measured.shard * 9 / 10);
  }
}

}  // namespace
}  // namespace trivet
