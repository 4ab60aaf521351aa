// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Worlds through the C ABI whose ranks are processes: over the caller's
// collectives, and over NCCL.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/quote.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/c_api/worlds/new_world.h"
#include "collectives/callbacks/callback_communicator.h"
#include "collectives/callbacks/shared_memory.h"
#include "collectives/communicator.h"
#include "collectives/nccl/id_exchange.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/nccl/nccl_invitation.h"
#include "collectives/nccl/nccl_machine.h"
#include "offload/cuda/cuda_device.h"

namespace castor::c_api {
namespace {

HostCollectives HostOf(const castor_callbacks& calls) {
  HostCollectives host;
  host.all_gather = [calls](uint64_t seq, const void* send, void* recv,
                            Bytes bytes) {
    return RunCallback("all_gather", [&] {
      return calls.all_gather(calls.context, seq, send, recv, bytes.count());
    });
  };
  host.all_to_all = [calls](uint64_t seq, const void* send,
                            const int64_t* send_bytes, void* recv,
                            const int64_t* recv_bytes) {
    return RunCallback("all_to_all", [&] {
      return calls.all_to_all(calls.context, seq, send, send_bytes, recv,
                              recv_bytes);
    });
  };
  host.barrier = [calls](uint64_t seq) {
    return RunCallback("barrier",
                       [&] { return calls.barrier(calls.context, seq); });
  };
  host.abort = [calls, aborted = std::make_shared<std::atomic<bool>>(false)](
                   const char* why) {
    if (aborted->exchange(true)) return;
    RunNotice("abort", [&] { calls.abort(calls.context, why); });
  };
  return host;
}

// This process is `rank` of the world.
void AddRank(WorldEntry* world, int32_t rank, int32_t size,
             std::unique_ptr<Communicator> communicator) {
  world->processes = true;
  world->ranks.resize(static_cast<size_t>(size));
  world->ranks[static_cast<size_t>(rank)] = std::move(communicator);
}

// A world over what `host` does, with what is to be released after it.
Result<std::unique_ptr<WorldEntry>> MakeHostWorld(
    int32_t rank, int32_t size, const HostCollectives& host,
    const castor_world_options& options) {
  std::unique_ptr<WorldEntry> made = NewWorld(size, options);
  bool interrupted = false;
  std::unique_ptr<Communicator> communicator;
  const Status met = Interruptibly(
      [&] {
        interrupted = true;
        host.abort(std::string(InterruptedError().message()).c_str());
      },
      [&]() -> Status {
        CASTOR_ASSIGN_OR_RETURN(
            communicator,
            MakeCallbackCommunicator(rank, size, host,
                                     {.timeout_ns = TimeoutNs(options)}));
        return OkStatus();
      });
  if (interrupted) {
    // The others may have come at the same moment.
    if (communicator != nullptr) communicator->Abort(InterruptedError());
    return InterruptedError();
  }
  CASTOR_RETURN_IF_ERROR(met);
  AddRank(made.get(), rank, size, std::move(communicator));
  return made;
}

Status CreateCallbackWorld(int32_t rank, int32_t size,
                           const castor_callbacks* callbacks,
                           const castor_world_options* given,
                           castor_world** world) {
  if (world == nullptr || callbacks == nullptr) {
    return InvalidArgument("callbacks or world is null; give both");
  }
  *world = nullptr;
  CASTOR_RETURN_IF_ERROR(CheckRanks(size, rank));
  CASTOR_RETURN_IF_ERROR(CheckStruct(*callbacks));
  const castor_callbacks calls = TakeStruct(*callbacks);
  if (calls.all_gather == nullptr || calls.all_to_all == nullptr ||
      calls.barrier == nullptr || calls.abort == nullptr) {
    return InvalidArgument(
        "a callback is null: give all_gather, all_to_all, barrier and abort");
  }
  CASTOR_ASSIGN_OR_RETURN(const castor_world_options options,
                          TakeOptions(given));
  CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<WorldEntry> made,
                          MakeHostWorld(rank, size, HostOf(calls), options));
  made->release = calls.release;
  made->release_context = calls.context;
  *world = GiveHandle<castor_world>(std::move(made));
  return OkStatus();
}

Status CreateSharedWorld(int32_t rank, int32_t size, const char* name,
                         const castor_world_options* given,
                         castor_world** world) {
  if (world == nullptr || name == nullptr) {
    return InvalidArgument("name or world is null; give both");
  }
  *world = nullptr;
  CASTOR_RETURN_IF_ERROR(CheckRanks(size, rank));
  if (size > kMostSharedMemoryRanks) {
    return InvalidArgument(
        fmt::format("{} ranks are more than the {} that can share memory", size,
                    kMostSharedMemoryRanks));
  }
  const std::string_view letters(name);
  if (letters.empty() || letters.size() > 200 ||
      !std::ranges::all_of(letters, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c >= '0' && c <= '9');
      })) {
    return InvalidArgument(
        fmt::format("the name {} is not of letters and digits, 200 at most",
                    Quoted(letters)));
  }
  CASTOR_ASSIGN_OR_RETURN(const castor_world_options options,
                          TakeOptions(given));
  const HostCollectives host = MakeSharedMemoryCollectives(
      rank, size, std::string(letters), TimeoutNs(options));
  CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<WorldEntry> made,
                          MakeHostWorld(rank, size, host, options));
  *world = GiveHandle<castor_world>(std::move(made));
  return OkStatus();
}

// Hosts of ids that were made and whose worlds were not, by their tokens.
struct NcclHosts {
  struct Host {
    internal::NcclHost host;
    int64_t generation = 0;
  };
  std::mutex mutex;
  std::map<std::string, Host> by_token;  // guarded by mutex
};

NcclHosts& TheHosts() {
  static NcclHosts hosts;
  return hosts;
}

static_assert(sizeof(castor_nccl_unique_id) == internal::kInvitationBytes);

Status MakeNcclId(castor_nccl_unique_id* id) {
  if (id == nullptr) return InvalidArgument("id is null; give a place for it");
  CASTOR_ASSIGN_OR_RETURN(const NcclMachine machine, FindNcclMachine());
  CASTOR_ASSIGN_OR_RETURN(internal::NcclHost host,
                          internal::NcclHost::Open(machine.nccl, ""));
  const internal::NcclInvitation invitation = host.invitation();
  std::ranges::copy(Pack(invitation),
                    std::as_writable_bytes(std::span(id->bytes)).begin());
  NcclHosts& hosts = TheHosts();
  const std::lock_guard lock(hosts.mutex);
  hosts.by_token.emplace(invitation.token,
                         NcclHosts::Host{std::move(host), ForkGeneration()});
  return OkStatus();
}

Result<internal::NcclHost> TakeHost(const std::string& token) {
  NcclHosts& hosts = TheHosts();
  const std::lock_guard lock(hosts.mutex);
  const auto place = hosts.by_token.find(token);
  if (place == hosts.by_token.end() ||
      !CheckProcess(place->second.generation).ok()) {
    return FailedPrecondition(
        "rank 0 did not make this id, or has made a world of it: rank 0 calls "
        "castor_nccl_id for each world, in the process that creates the world");
  }
  internal::NcclHost host = std::move(place->second.host);
  hosts.by_token.erase(place);
  return host;
}

Status CreateNcclWorld(int32_t rank, int32_t size,
                       const castor_nccl_unique_id* id,
                       const castor_world_options* given,
                       castor_world** world) {
  if (world == nullptr || id == nullptr) {
    return InvalidArgument("id or world is null; give both");
  }
  *world = nullptr;
  CASTOR_RETURN_IF_ERROR(CheckRanks(size, rank));
  CASTOR_ASSIGN_OR_RETURN(const castor_world_options options,
                          TakeOptions(given));
  const auto bytes = std::as_bytes(std::span(id->bytes));
  const Result<internal::NcclInvitation> invitation = internal::Unpack(bytes);
  if (!invitation.ok()) {
    return invitation.status().WithContext(
        "the id is not what castor_nccl_id made on rank 0");
  }
  CASTOR_ASSIGN_OR_RETURN(const NcclMachine machine, FindNcclMachine());
  std::unique_ptr<WorldEntry> made = NewWorld(size, options);
  CASTOR_ASSIGN_OR_RETURN(
      std::unique_ptr<CudaDevice> gpu,
      CudaDevice::Open(machine.cuda,
                       {.ordinal = options.gpu, .executor = made->pool.get()}));
  FunctionIdExchange told([&](int, std::span<std::byte> data) {
    std::ranges::copy(bytes, data.begin());
    return OkStatus();
  });
  NcclOptions nccl;
  nccl.rank = rank;
  nccl.world = size;
  nccl.device = gpu.get();
  nccl.nccl = machine.nccl;
  nccl.exchange = &told;
  nccl.timeout_ns = TimeoutNs(options);
  nccl.start_timeout_ns = nccl.timeout_ns;
  if (HasInterrupt()) nccl.give_up = Interrupted;
  Result<internal::NcclHost> host = Status(Internal("of rank 0 only"));
  if (rank == 0) {
    host = TakeHost(invitation->token);
    CASTOR_RETURN_IF_ERROR(host.status());
    nccl.host = &*host;
  }
  CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                          MakeNcclCommunicator(nccl));
  made->gpu = std::move(gpu);
  made->gpu_ordinal = options.gpu;
  AddRank(made.get(), rank, size, std::move(communicator));
  *world = GiveHandle<castor_world>(std::move(made));
  return OkStatus();
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

int32_t castor_world_create_callbacks(int32_t rank, int32_t size,
                                      const castor_callbacks* callbacks,
                                      const castor_world_options* options,
                                      castor_world** world) {
  return castor::c_api::ThroughTheDoor([&] {
    return castor::c_api::CreateCallbackWorld(rank, size, callbacks, options,
                                              world);
  });
}

int32_t castor_world_create_shared(int32_t rank, int32_t size, const char* name,
                                   const castor_world_options* options,
                                   castor_world** world) {
  return castor::c_api::ThroughTheDoor([&] {
    return castor::c_api::CreateSharedWorld(rank, size, name, options, world);
  });
}

int32_t castor_nccl_id(castor_nccl_unique_id* id) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::MakeNcclId(id); });
}

int32_t castor_world_create_nccl(int32_t rank, int32_t size,
                                 const castor_nccl_unique_id* id,
                                 const castor_world_options* options,
                                 castor_world** world) {
  return castor::c_api::ThroughTheDoor([&] {
    return castor::c_api::CreateNcclWorld(rank, size, id, options, world);
  });
}

}  // extern "C"
