// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The contract over memory that ranks share, and processes that share it.

#include "collectives/callbacks/shared_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/callbacks/callback_communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/contracts/communicator_contract.h"
#include "tests/support/hosted_world.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

constexpr int64_t kPatientNs = 60'000'000'000;

// New for each world.
std::string NewName() {
  static std::atomic<int> next = 0;
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
}

bool IsNamed(const std::string& name) {
  const int file = ::shm_open(("/castor-" + name).c_str(), O_RDONLY, 0);
  if (file >= 0) ::close(file);
  return file >= 0;
}

CommunicatorBackend Backend(int world) {
  return {.name = "World" + std::to_string(world),
          .world = world,
          .make = [=](int64_t timeout_ns) -> std::unique_ptr<WorldUnderTest> {
            return std::make_unique<HostedWorld>(
                world, CallbackOptions{.timeout_ns = timeout_ns},
                [=, name = NewName()](int rank) {
                  return MakeSharedMemoryCollectives(rank, world, name,
                                                     kPatientNs);
                });
          }};
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, CommunicatorContract,
                         testing::Values(Backend(1), Backend(2), Backend(3),
                                         Backend(6)),
                         CommunicatorBackendName());

TEST(SharedMemoryTest, IsSmallHoweverManyRanksThereAre) {
  for (int size = 1; size <= kMostSharedMemoryRanks; ++size) {
    EXPECT_LE(SharedMemoryFor(size), MiB(32)) << size;
    EXPECT_GE(SharedMemoryFor(size), KiB(448) * size) << size;
  }
  EXPECT_EQ(SharedMemoryFor(2), MiB(16));
}

// What rank `from` sends to rank `to`: sizes differ, and some are 0.
int64_t SizeOf(int from, int to) {
  const int64_t sizes[] = {0, 1, 4097, 3'000'000, 5'000'001};
  return sizes[static_cast<size_t>(from * 3 + to * 2) % 5];
}

// The bytes that rank `from` sends to rank `to`, or to all ranks if `to` is 0.
// Each is a part of one array, which is made once, before ranks are forked.
const uint8_t* BytesOf(int from, int to) {
  static const std::vector<uint8_t> kBytes = [] {
    std::vector<uint8_t> bytes(10'000'000);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(i * 7 + i / 4096);
    }
    return bytes;
  }();
  return kBytes.data() + from * 71 + to * 13;
}

// All calls of a rank, whose process ends with 0 where each gave what it
// should.
int TrainOneRank(int rank, int size, const std::string& name) {
  const HostCollectives host =
      MakeSharedMemoryCollectives(rank, size, name, kPatientNs);
  uint64_t seq = 0;
  if (!host.barrier(seq++).ok()) return 2;
  for (const int64_t bytes :
       {int64_t{0}, int64_t{5}, int64_t{1} << 20, int64_t{9'000'001}}) {
    std::vector<uint8_t> all(static_cast<size_t>(bytes * size));
    uint8_t* const own = all.data() + rank * bytes;
    std::copy_n(BytesOf(rank, 0), bytes, own);
    if (!host.all_gather(seq++, own, all.data(), Bytes(bytes)).ok()) return 3;
    for (int from = 0; from < size; ++from) {
      const uint8_t* const theirs = all.data() + from * bytes;
      if (!std::equal(theirs, theirs + bytes, BytesOf(from, 0))) return 4;
    }
    std::vector<int64_t> sends;
    std::vector<int64_t> receives;
    std::vector<uint8_t> send;
    std::vector<uint8_t> want;
    for (int r = 0; r < size; ++r) {
      sends.push_back(SizeOf(rank, r));
      receives.push_back(SizeOf(r, rank));
      send.insert(send.end(), BytesOf(rank, r),
                  BytesOf(rank, r) + sends.back());
      want.insert(want.end(), BytesOf(r, rank),
                  BytesOf(r, rank) + receives.back());
    }
    std::vector<uint8_t> got(want.size());
    if (!host.all_to_all(seq++, send.data(), sends.data(), got.data(),
                         receives.data())
             .ok()) {
      return 5;
    }
    if (got != want) return 6;
  }
  return host.barrier(seq).ok() ? 0 : 7;
}

// Runs `body` in a process for each rank, and returns how each ended: its exit
// code, or minus the signal.
std::vector<int> InProcesses(int size, const std::function<int(int)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body(rank));
    children.push_back(child);
  }
  std::vector<int> ends;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ends.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return ends;
}

TEST(SharedMemoryTest, ProcessesExchangeAnySizes) {
  ASSERT_NE(BytesOf(0, 1)[0], BytesOf(1, 0)[0]);
  for (const int size : {1, 2, 3, 5}) {
    const std::string name = NewName();
    const std::vector<int> ends = InProcesses(
        size, [&](int rank) { return TrainOneRank(rank, size, name); });
    EXPECT_THAT(ends, testing::Each(0)) << size;
    EXPECT_FALSE(IsNamed(name)) << "nothing is left";
  }
}

// The others end within a second, whatever their timeout.
TEST(SharedMemoryTest, AProcessThatDiesIsNamed) {
  const std::string name = NewName();
  const std::vector<int> ends = InProcesses(3, [&](int rank) {
    const HostCollectives host =
        MakeSharedMemoryCollectives(rank, 3, name, kPatientNs);
    if (!host.barrier(0).ok()) return 2;
    if (rank == 1) ::raise(SIGKILL);
    const Status status = host.barrier(1);
    const std::string words(status.message());
    if (rank == 0) return words.find("rank 1") != std::string::npos ? 0 : 3;
    return status.ok() ? 4 : 0;
  });
  EXPECT_THAT(ends, testing::ElementsAre(0, -SIGKILL, 0));
}

TEST(SharedMemoryTest, AWorldThatIsEndedEndsAllWaits) {
  const std::string name = NewName();
  std::vector<HostCollectives> hosts;
  for (int rank = 0; rank < 3; ++rank) {
    hosts.push_back(MakeSharedMemoryCollectives(rank, 3, name, kPatientNs));
  }
  std::vector<Status> ends(3);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ends[rank] = hosts[rank].barrier(0);
      if (rank == 2) {
        hosts[rank].abort("a lack of coffee");
      } else if (ends[rank].ok()) {
        // Rank 2 may end the world while this rank still leaves barrier 0.
        ends[rank] = hosts[rank].barrier(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(ends[2], IsOk());
  EXPECT_THAT(ends[0].message(), HasSubstr("a lack of coffee"));
  EXPECT_THAT(ends[1].message(), HasSubstr("a lack of coffee"));
  // Also what waits for ranks that have not come.
  HostCollectives alone =
      MakeSharedMemoryCollectives(1, 2, NewName(), kPatientNs);
  std::thread waits(
      [&] { EXPECT_THAT(alone.barrier(0).message(), HasSubstr("ended")); });
  alone.abort("no");
  waits.join();
}

TEST(SharedMemoryTest, RanksThatDoNotComeAreToldOfInTime) {
  const std::string name = NewName();
  HostCollectives first = MakeSharedMemoryCollectives(0, 2, name, 30'000'000);
  EXPECT_THAT(first.barrier(0).message(), HasSubstr("1 of 2 ranks have come"));
  first = {};
  EXPECT_FALSE(IsNamed(name));
  HostCollectives second = MakeSharedMemoryCollectives(1, 2, name, 30'000'000);
  EXPECT_THAT(second.barrier(0).message(), HasSubstr("rank 0 has not made"));
}

TEST(SharedMemoryTest, ANameThatIsTakenIsRefused) {
  const std::string name = NewName();
  const std::string path = "/castor-" + name;
  const int file = ::shm_open(path.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(file, 0);
  ::close(file);
  const HostCollectives host =
      MakeSharedMemoryCollectives(0, 1, name, kPatientNs);
  EXPECT_THAT(host.barrier(0).message(), HasSubstr("cannot be made"));
  EXPECT_TRUE(IsNamed(name)) << "it is another's";
  ::shm_unlink(path.c_str());
}

}  // namespace
}  // namespace castor
