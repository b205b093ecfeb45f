// SPDX-License-Identifier: Apache-2.0
#include "device/graph.h"

#include "base/check.h"
#include "device/cuda.h"

namespace trivet::device {

Result<Graph> Graph::Record(const std::function<Status()>& work) {
  Graph graph;
  cuda::BeginRecording();
  const Status status = work();
  graph.handle_ = cuda::EndRecording();
  if (!status.ok()) return status.error();
  return graph;
}

Graph::~Graph() {
  if (handle_ != nullptr) cuda::FreeRecording(handle_);
}

void Graph::Launch() const {
  CHECK(recorded());
  cuda::LaunchRecording(handle_);
}

}  // namespace trivet::device
