// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Worlds through the C ABI: what all have, and those of threads.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/c_api/worlds/new_world.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "offload/lanes/executor.h"
#include "offload/worker_pool.h"

namespace castor::c_api {
namespace {

constexpr int32_t kMostRanks = 1024;
constexpr int64_t kTimeoutMs = 120'000;

}  // namespace

Result<castor_world_options> TakeOptions(const castor_world_options* given) {
  castor_world_options options = {};
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
    options = TakeStruct(*given);
  }
  if (options.threads < 0) {
    return InvalidArgument(fmt::format(
        "threads is {}; give 0 for as many as there are", options.threads));
  }
  if (options.ranks_of_cores < 0) {
    return InvalidArgument(fmt::format(
        "ranks_of_cores is {}; give 0 where no other rank uses the same cores",
        options.ranks_of_cores));
  }
  if (options.timeout_ms == 0) options.timeout_ms = kTimeoutMs;
  constexpr int64_t kMostMs = INT64_MAX / 1'000'000;
  if (options.timeout_ms > kMostMs) options.timeout_ms = -1;
  return options;
}

int64_t TimeoutNs(const castor_world_options& options) {
  return options.timeout_ms < 0 ? 0 : options.timeout_ms * 1'000'000;
}

Status CheckRanks(int32_t ranks, int32_t rank) {
  if (ranks < 1 || ranks > kMostRanks) {
    return InvalidArgument(
        fmt::format("a world has 1 to {} ranks, not {}", kMostRanks, ranks));
  }
  if (rank >= 0 && rank < ranks) return OkStatus();
  return InvalidArgument(fmt::format(
      "there is no rank {} in a world of {}: ranks count from 0", rank, ranks));
}

std::unique_ptr<WorldEntry> NewWorld(int32_t ranks,
                                     const castor_world_options& options) {
  auto made = std::make_unique<WorldEntry>();
  made->pool = std::make_unique<ThreadPool>(
      static_cast<int>(std::max(2u, std::thread::hardware_concurrency())));
  made->workers = std::make_unique<WorkerPool>(
      WorkerPoolOptions{.threads = options.threads,
                        .sharers = std::max(1, options.ranks_of_cores)});
  made->taken =
      std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(ranks));
  if (options.log != nullptr) {
    made->log = [log = options.log, context = options.log_context](
                    LogLevel level, std::string_view line) {
      RunNotice("log", [&] {
        log(context, static_cast<int32_t>(level), std::string(line).c_str());
      });
    };
  }
  return made;
}

namespace {

Status CreateWorld(int32_t ranks, const castor_world_options* given,
                   castor_world** world) {
  if (world == nullptr) {
    return InvalidArgument("world is null; give a place for the handle");
  }
  *world = nullptr;
  CASTOR_RETURN_IF_ERROR(CheckRanks(ranks));
  CASTOR_ASSIGN_OR_RETURN(const castor_world_options options,
                          TakeOptions(given));
  std::unique_ptr<WorldEntry> made = NewWorld(ranks, options);
  made->ranks = MakeInProcessWorld({.world = ranks,
                                    .executor = made->pool.get(),
                                    .timeout_ns = TimeoutNs(options)});
  *world = GiveHandle<castor_world>(std::move(made));
  return OkStatus();
}

Status AbortWorld(const castor_world* handle, const char* why) {
  if (handle == nullptr) return InvalidArgument("world is null");
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_world> world,
                          Use<castor_world>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(world->generation));
  world->Abort(Aborted(why == nullptr ? "the program ended the world" : why));
  return OkStatus();
}

Status DestroyWorld(const castor_world* handle) {
  if (handle == nullptr) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(Claim<castor_world> world,
                          Claim<castor_world>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(world->generation));
  const int64_t engines = world->engines;
  if (engines > 0) {
    return FailedPrecondition(fmt::format(
        "{} engines of the world are there; destroy them first", engines));
  }
  const int64_t lanes = world->lanes;
  if (lanes > 0) {
    return FailedPrecondition(fmt::format(
        "{} lanes of the world are there; destroy them first", lanes));
  }
  const int64_t devices = world->devices;
  if (devices > 0) {
    return FailedPrecondition(fmt::format(
        "{} devices of the world are there; destroy them first", devices));
  }
  const Status recorded =
      world->recorder == nullptr ? OkStatus() : world->recorder->Close();
  // A communicator waits for the other ranks' before it goes.
  for (std::unique_ptr<Communicator>& rank : world->ranks) {
    CASTOR_RETURN_IF_ERROR(
        Interruptibly([own = rank.get()] { own->Abort(InterruptedError()); },
                      [&] {
                        rank = nullptr;
                        return OkStatus();
                      }));
  }
  if (world->release != nullptr) {
    RunNotice("release", [&] { world->release(world->release_context); });
  }
  world.Delete();
  return recorded;
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

int32_t castor_world_create(int32_t ranks, const castor_world_options* options,
                            castor_world** world) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::CreateWorld(ranks, options, world); });
}

int32_t castor_world_abort(castor_world* world, const char* why) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::AbortWorld(world, why); });
}

int32_t castor_world_destroy(castor_world* world) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::DestroyWorld(world); });
}

}  // extern "C"
