// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_CONTRACTS_COMMUNICATOR_CONTRACT_H_
#define CASTOR_TESTS_SUPPORT_CONTRACTS_COMMUNICATOR_CONTRACT_H_

// What collectives/communicator.h promises, asked of every backend alike. A
// backend instantiates the suite with the worlds it can make:
//
//   INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorContract,
//                            testing::Values(InProcessBackend(3), ...),
//                            CommunicatorBackendName());
//
// A test is a body that every rank runs; a process runs it for the ranks it
// holds: threads all of them, a process of an MPI job its own. So bodies use
// nothing of other ranks, and compute what to expect.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "gtest/gtest.h"
#include "offload/lane.h"

namespace castor {

inline CollectiveTag Tag(int32_t chunk, int64_t moment,
                         std::string_view purpose = "test") {
  return {.chunk = ChunkId(chunk), .moment = moment, .purpose = purpose};
}

// One rank, for the time of a body.
struct RankUnderTest {
  int rank() const { return comm.rank(); }
  int world() const { return comm.world(); }

  Communicator& comm;
  // Two lanes that run at the same time.
  Lane& lane;
  Lane& lane2;
};

using RankBody = std::function<void(RankUnderTest&)>;

// Runs `body`, and where an expectation of the test has failed, on this rank or
// another, ends the world: a rank that gave up leaves others waiting.
inline void RunRank(const RankBody& body, RankUnderTest self) {
  body(self);
  if (!testing::Test::HasFailure()) return;
  self.comm.Abort(Aborted("an expectation of the test failed"));
}

// A world of ranks, some or all of them in this process.
class WorldUnderTest {
 public:
  virtual ~WorldUnderTest() = default;
  // Calls RunRank for each rank of this process, all at the same time, each
  // with fresh lanes, and returns when all have returned and their lanes are
  // idle.
  virtual void ForEachRank(const RankBody& body) = 0;
};

// Bodies run at the same time on the ranks of one process, so what a test
// gathers from them goes through here.
class Notes {
 public:
  void Add(std::string note) {
    std::lock_guard lock(mutex_);
    notes_.push_back(std::move(note));
  }
  std::vector<std::string> all() const {
    std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> notes_;
};

struct CommunicatorBackend {
  std::string name;  // letters and digits
  int world = 1;
  std::function<std::unique_ptr<WorldUnderTest>(int64_t timeout_ns)> make;
};

inline std::ostream& operator<<(std::ostream& out,
                                const CommunicatorBackend& backend) {
  return out << backend.name;
}

struct CommunicatorBackendName {
  std::string operator()(
      const testing::TestParamInfo<CommunicatorBackend>& info) const {
    return info.param.name;
  }
};

class CommunicatorContract
    : public testing::TestWithParam<CommunicatorBackend> {
 protected:
  // Long enough never to be met by a test that means to pass without it, and
  // shorter than a test may take: an operation that hangs is named.
  static constexpr int64_t kPatientNs = 45'000'000'000;

  std::unique_ptr<WorldUnderTest> MakeWorld(int64_t timeout_ns = kPatientNs) {
    return GetParam().make(timeout_ns);
  }
  int world() const { return GetParam().world; }
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_CONTRACTS_COMMUNICATOR_CONTRACT_H_
