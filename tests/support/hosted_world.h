// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_HOSTED_WORLD_H_
#define CASTOR_TESTS_SUPPORT_HOSTED_WORLD_H_

// A world of callback communicators for the contract (communicator_contract.h):
// every rank is a thread, which makes and destroys its communicator.

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/callbacks/callback_communicator.h"
#include "collectives/communicator.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "tests/support/contracts/communicator_contract.h"
#include "tests/support/status_matchers.h"

namespace castor {

class HostedWorld : public WorldUnderTest {
 public:
  // `host_of` has the collectives of each rank, which outlive the world.
  HostedWorld(int world, const CallbackOptions& options,
              const std::function<HostCollectives(int rank)>& host_of)
      : ranks_(static_cast<size_t>(world)) {
    OnEveryRank([&](int rank) {
      auto made = MakeCallbackCommunicator(rank, world, host_of(rank), options);
      EXPECT_THAT(made, IsOk());
      if (made.ok()) ranks_[static_cast<size_t>(rank)] = *std::move(made);
    });
  }
  ~HostedWorld() override { Leave(); }

  void ForEachRank(const RankBody& body) override {
    OnEveryRank([&](int rank) {
      WorkerLane lane("lane", &pool_);
      WorkerLane lane2("lane2", &pool_);
      RunRank(body, {*ranks_[static_cast<size_t>(rank)], lane, lane2});
    });
  }

 protected:
  // Before anything of a derived class goes that the ranks call.
  void Leave() {
    OnEveryRank([&](int rank) { ranks_[static_cast<size_t>(rank)].reset(); });
  }

 private:
  void OnEveryRank(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      threads.emplace_back([&body, rank] { body(rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  ThreadPool pool_{2};
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_HOSTED_WORLD_H_
