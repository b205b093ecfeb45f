// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <vector>

namespace trivet::comm {
namespace {

// NCCL's public C interface, as far as it is used.
constexpr size_t kIdBytes = 128;
struct UniqueId {
  char internal[kIdBytes];
};
using Handle = void*;  // ncclComm_t
constexpr int kSuccess = 0, kInt64 = 4, kFloat32 = 7, kSum = 0;

// CUDA's name for the calling thread's default stream.
void* ThreadStream() { return reinterpret_cast<void*>(uintptr_t{2}); }

Error Unsupported(const std::string& sentence) { return MakeError(Code::kUnsupported, "NCCL: " + sentence); }

}  // namespace

// It stays loaded until the program ends: NCCL may have started threads.
struct Nccl::Library {
  Status Open(const std::string& name);
  // What a result means.
  Status Check(int result, const char* call) const {
    if (result == kSuccess) return {};
    return Unsupported(
        fmt::format("{}: expected success, found: {}; leave NCCL out, or give every rank a GPU of its own", call,
                    error_string(result)));
  }

  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*comm_init_rank)(Handle*, int, UniqueId, int) = nullptr;
  int (*comm_destroy)(Handle) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, Handle, void*) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

Status Nccl::Library::Open(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Unsupported(fmt::format("{}: expected a library, found: {}; give its file", name, ::dlerror()));
  }
  const auto find = [&](auto* function, const char* symbol) -> Status {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(::dlsym(handle, symbol));
    if (*function != nullptr) return {};
    return Unsupported(fmt::format("{}: expected the function {}, found none; give another library", name, symbol));
  };
  TRY(find(&get_version, "ncclGetVersion"));
  TRY(find(&get_unique_id, "ncclGetUniqueId"));
  TRY(find(&comm_init_rank, "ncclCommInitRank"));
  TRY(find(&comm_destroy, "ncclCommDestroy"));
  TRY(find(&all_reduce, "ncclAllReduce"));
  return find(&error_string, "ncclGetErrorString");
}

Nccl::Nccl(std::unique_ptr<Library> library, const device::Device& device)
    : library_(std::move(library)), device_(device) {}

Result<std::unique_ptr<Nccl>> Nccl::Make(Communicator* comm, const device::Device& device, const std::string& library) {
  auto opened = std::make_unique<Library>();
  Status own = device.backend() == Backend::kCuda
                   ? opened->Open(library)
                   : Status(Unsupported("expected ranks on GPUs, found them on the processor; use --backend cuda"));
  // A rank without the library would leave the others waiting.
  comm->SetReport(own.ok() ? 0 : 1);
  TRY(comm->Barrier(true));
  const bool missing = comm->AnyReport() != 0;
  TRY(comm->Barrier(true));
  comm->SetReport(0);
  TRY(own);
  if (missing) return Unsupported("expected the library on every rank, found one without; give a file that all have");
  UniqueId id{};
  if (comm->rank() == 0) TRY(opened->Check(opened->get_unique_id(&id), "ncclGetUniqueId"));
  TRY_ASSIGN(const std::vector<std::byte> shared, comm->Broadcast(std::as_bytes(std::span(id.internal)), true));
  if (comm->rank() != 0) std::memcpy(id.internal, shared.data(), kIdBytes);
  std::unique_ptr<Nccl> made(new Nccl(std::move(opened), device));
  const Library& nccl = *made->library_;
  TRY(nccl.Check(nccl.comm_init_rank(&made->comm_, static_cast<int>(comm->size()), id, static_cast<int>(comm->rank())),
                 "ncclCommInitRank"));
  TRY(comm->Barrier(true));
  return made;
}

Nccl::~Nccl() {
  device_.Wait();
  if (comm_ != nullptr) library_->comm_destroy(comm_);
}

Status Nccl::Sum(void* values, size_t count, int type) {
  return library_->Check(library_->all_reduce(values, values, count, type, kSum, comm_, ThreadStream()),
                         "ncclAllReduce");
}

Status Nccl::AllReduce(std::span<int64_t> values) { return Sum(values.data(), values.size(), kInt64); }
Status Nccl::AllReduce(std::span<float> values) { return Sum(values.data(), values.size(), kFloat32); }

std::string Nccl::Version() const {
  int version = 0;
  library_->get_version(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace trivet::comm
