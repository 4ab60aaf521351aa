// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace castor {
namespace {

class SystemLoader final : public LibraryLoader {
 public:
  void* Open(const std::string& file, bool loaded,
             std::string* why) const override {
    const int flags = RTLD_NOW | RTLD_LOCAL | (loaded ? RTLD_NOLOAD : 0);
    void* const library = dlopen(file.empty() ? nullptr : file.c_str(), flags);
    if (library == nullptr) {
      const char* const text = dlerror();
      *why = text != nullptr ? text : "it is not loaded";
    }
    return library;
  }
  void* Find(void* library, const char* symbol) const override {
    return dlsym(library, symbol);
  }
};

// Declared as in nccl.h, with pointers for handles and int for enumerations.
struct Functions {
  int (*get_version)(int*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(NcclComm) = nullptr;
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*comm_init_rank_config)(NcclComm*, int, NcclUniqueId, int,
                               NcclConfig*) = nullptr;
  int (*comm_get_async_error)(NcclComm, int*) = nullptr;
  int (*comm_finalize)(NcclComm) = nullptr;
  int (*comm_destroy)(NcclComm) = nullptr;
  int (*comm_abort)(NcclComm) = nullptr;
  int (*comm_register)(NcclComm, void*, size_t, void**) = nullptr;
  int (*comm_deregister)(NcclComm, void*) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int, NcclComm,
                    CudaStream) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int, int, NcclComm,
                        CudaStream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, size_t, int, int, NcclComm, CudaStream) = nullptr;
  int (*recv)(void*, size_t, int, int, NcclComm, CudaStream) = nullptr;
};

constexpr int kSum = 0;  // ncclSum

class LoadedNccl final : public NcclCalls {
 public:
  LoadedNccl(const Functions& functions, int version)
      : nccl_(functions), version_(version) {}

  int version() const override { return version_; }
  std::string ErrorText(int result) const override {
    return fmt::format("{} ({})", nccl_.get_error_string(result), result);
  }
  std::string LastError(NcclComm comm) override {
    const char* const text = nccl_.get_last_error(comm);
    return text != nullptr ? text : "";
  }

  int GetUniqueId(NcclUniqueId* id) override { return nccl_.get_unique_id(id); }
  int CommInitRank(NcclComm* comm, int world, const NcclUniqueId& id,
                   int rank) override {
    NcclConfig config;
    return nccl_.comm_init_rank_config(comm, world, id, rank, &config);
  }
  int CommGetAsyncError(NcclComm comm, int* result) override {
    return nccl_.comm_get_async_error(comm, result);
  }
  int CommFinalize(NcclComm comm) override { return nccl_.comm_finalize(comm); }
  int CommDestroy(NcclComm comm) override { return nccl_.comm_destroy(comm); }
  int CommAbort(NcclComm comm) override { return nccl_.comm_abort(comm); }

  bool can_register() const override {
    return nccl_.comm_register != nullptr && nccl_.comm_deregister != nullptr;
  }
  int CommRegister(NcclComm comm, void* data, int64_t size,
                   void** handle) override {
    return nccl_.comm_register(comm, data, static_cast<size_t>(size), handle);
  }
  int CommDeregister(NcclComm comm, void* handle) override {
    return nccl_.comm_deregister(comm, handle);
  }

  int AllGather(const void* from, void* to, int64_t count, NcclType type,
                NcclComm comm, CudaStream stream) override {
    return nccl_.all_gather(from, to, static_cast<size_t>(count),
                            static_cast<int>(type), comm, stream);
  }
  int ReduceScatter(const void* from, void* to, int64_t count, NcclType type,
                    NcclComm comm, CudaStream stream) override {
    return nccl_.reduce_scatter(from, to, static_cast<size_t>(count),
                                static_cast<int>(type), kSum, comm, stream);
  }
  int GroupStart() override { return nccl_.group_start(); }
  int GroupEnd() override { return nccl_.group_end(); }
  int Send(const void* from, int64_t count, NcclType type, int peer,
           NcclComm comm, CudaStream stream) override {
    return nccl_.send(from, static_cast<size_t>(count), static_cast<int>(type),
                      peer, comm, stream);
  }
  int Recv(void* to, int64_t count, NcclType type, int peer, NcclComm comm,
           CudaStream stream) override {
    return nccl_.recv(to, static_cast<size_t>(count), static_cast<int>(type),
                      peer, comm, stream);
  }

 private:
  const Functions nccl_;
  const int version_;
};

std::string EnvironmentOr(const char* name, std::string otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : std::move(otherwise);
}

struct Found {
  void* library = nullptr;
  std::string name;
};

constexpr std::string_view kRemedy =
    "Install NCCL 2.14 or newer, or set CASTOR_NCCL_LIBRARY to its "
    "libnccl.so.2 (PyTorch brings one: nvidia/nccl/lib in its site-packages)";

// In the order of the header.
Result<Found> Seek(const NcclLibraryOptions& options,
                   const LibraryLoader& loader) {
  std::string why;
  const std::string named = options.file.empty()
                                ? EnvironmentOr("CASTOR_NCCL_LIBRARY", "")
                                : options.file;
  if (!named.empty()) {
    void* const library = loader.Open(named, false, &why);
    if (library != nullptr) return Found{library, named};
    return Unavailable(
        fmt::format("{} cannot be loaded as NCCL: {}", named, why));
  }
  constexpr const char* kName = "libnccl.so.2";
  if (void* const library = loader.Open(kName, true, &why)) {
    return Found{library, fmt::format("{}, loaded before", kName)};
  }
  void* const process = loader.Open("", true, &why);
  if (process != nullptr && loader.Find(process, "ncclGetVersion") != nullptr) {
    return Found{process, "NCCL of this program"};
  }
  if (void* const library = loader.Open(kName, false, &why)) {
    return Found{library, kName};
  }
  const std::string toolkit =
      EnvironmentOr("CUDA_HOME", "/usr/local/cuda") + "/lib64/libnccl.so.2";
  std::string toolkit_why;
  if (void* const library = loader.Open(toolkit, false, &toolkit_why)) {
    return Found{library, toolkit};
  }
  return Unavailable(
      fmt::format("there is no NCCL: {}; {}. {}", why, toolkit_why, kRemedy));
}

}  // namespace

std::string NcclVersionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100,
                     version % 100);
}

Result<std::unique_ptr<NcclCalls>> NcclLibrary::Load(
    const NcclLibraryOptions& options) {
  const SystemLoader system;
  const LibraryLoader& loader =
      options.loader != nullptr ? *options.loader : system;
  CASTOR_ASSIGN_OR_RETURN(const Found found, Seek(options, loader));

  Functions nccl;
  std::vector<std::string> missing;
  const auto bind_optional = [&](const char* symbol, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
        loader.Find(found.library, symbol));
  };
  const auto bind = [&](const char* symbol, auto* function) {
    bind_optional(symbol, function);
    if (*function == nullptr) missing.push_back(symbol);
  };
  bind("ncclGetVersion", &nccl.get_version);
  if (nccl.get_version == nullptr) {
    return Unavailable(
        fmt::format("{} is not NCCL: it has no ncclGetVersion", found.name));
  }
  int version = 0;
  if (const int error = nccl.get_version(&version); error != kNcclSuccess) {
    return Unavailable(
        fmt::format("ncclGetVersion of {} fails with {}", found.name, error));
  }
  if (version < kOldestNccl) {
    return Unavailable(fmt::format("{} is NCCL {}, older than {}. {}",
                                   found.name, NcclVersionText(version),
                                   NcclVersionText(kOldestNccl), kRemedy));
  }
  bind("ncclGetErrorString", &nccl.get_error_string);
  bind("ncclGetLastError", &nccl.get_last_error);
  bind("ncclGetUniqueId", &nccl.get_unique_id);
  bind("ncclCommInitRankConfig", &nccl.comm_init_rank_config);
  bind("ncclCommGetAsyncError", &nccl.comm_get_async_error);
  bind("ncclCommFinalize", &nccl.comm_finalize);
  bind("ncclCommDestroy", &nccl.comm_destroy);
  bind("ncclCommAbort", &nccl.comm_abort);
  bind_optional("ncclCommRegister", &nccl.comm_register);
  bind_optional("ncclCommDeregister", &nccl.comm_deregister);
  bind("ncclAllGather", &nccl.all_gather);
  bind("ncclReduceScatter", &nccl.reduce_scatter);
  bind("ncclGroupStart", &nccl.group_start);
  bind("ncclGroupEnd", &nccl.group_end);
  bind("ncclSend", &nccl.send);
  bind("ncclRecv", &nccl.recv);
  if (!missing.empty()) {
    std::string names;
    for (const std::string& name : missing) {
      names += names.empty() ? name : fmt::format(", {}", name);
    }
    return Unavailable(fmt::format("{} is NCCL {}, but without {}", found.name,
                                   NcclVersionText(version), names));
  }
  return std::unique_ptr<NcclCalls>(
      std::make_unique<LoadedNccl>(nccl, version));
}

}  // namespace castor
