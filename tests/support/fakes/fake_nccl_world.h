// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_FAKE_NCCL_WORLD_H_
#define CASTOR_TESTS_SUPPORT_FAKES_FAKE_NCCL_WORLD_H_

// A world of NCCL ranks that are threads of one process, over a fake NCCL and a
// fake CUDA runtime that they share, each with a GPU of its own on it. Owner
// thread only.

#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "collectives/nccl/id_exchange.h"
#include "collectives/nccl/nccl_communicator.h"
#include "offload/cuda/cuda_device.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/fakes/fake_nccl.h"

namespace castor {

// Runs `body(rank)` on a thread for each of `world` ranks.
inline void OnEveryRank(int world, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

class FakeNcclWorld {
 public:
  // `hardware_queues` as FakeCudaOptions has them.
  explicit FakeNcclWorld(int world, FakeNcclOptions nccl = {},
                         int hardware_queues = 0)
      : cuda_({.devices = world, .hardware_queues = hardware_queues}),
        nccl_(&cuda_, nccl),
        size_(world),
        ranks_(static_cast<size_t>(world)) {
    for (int rank = 0; rank < world; ++rank) {
      auto device = CudaDevice::Open(
          &cuda_, {.ordinal = rank, .executor = &pool_, .log = &log_});
      CASTOR_CHECK(device.ok());
      devices_.push_back(*std::move(device));
    }
  }
  ~FakeNcclWorld() {
    OnEveryRank(size_, [this](int rank) { Drop(rank); });
  }
  FakeNcclWorld(const FakeNcclWorld&) = delete;
  FakeNcclWorld& operator=(const FakeNcclWorld&) = delete;

  // Joins all ranks, with `options` and what is each rank's own; `change` may
  // make ranks differ. Returns what each was told.
  std::vector<Status> Join(
      const NcclOptions& options,
      const std::function<void(NcclOptions&)>& change = {}) {
    std::vector<Status> statuses(static_cast<size_t>(size_));
    OnEveryRank(size_, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      NcclOptions own = options;
      own.rank = rank;
      own.world = size_;
      own.device = devices_[r].get();
      own.nccl = &nccl_;
      own.exchange = &exchange_;
      if (change) change(own);
      auto made = MakeNcclCommunicator(own);
      statuses[r] = made.status();
      if (made.ok()) ranks_[r] = *std::move(made);
    });
    return statuses;
  }

  int size() const { return size_; }
  Communicator& comm(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  CudaDevice& device(int rank) { return *devices_[static_cast<size_t>(rank)]; }
  void Drop(int rank) { ranks_[static_cast<size_t>(rank)] = nullptr; }
  FakeNccl& nccl() { return nccl_; }
  FakeCuda& cuda() { return cuda_; }
  Executor* executor() { return &pool_; }

 private:
  FakeCuda cuda_;
  FakeNccl nccl_;
  Log log_{[](LogLevel, std::string_view) {}};
  ThreadPool pool_{2};
  ThreadIdExchange exchange_{10'000'000'000};
  const int size_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_FAKE_NCCL_WORLD_H_
