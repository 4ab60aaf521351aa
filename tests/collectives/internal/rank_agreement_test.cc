// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/rank_agreement.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/executor.h"
#include "offload/lane.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

using testing::Each;

using Body = std::function<Status(Communicator&, Lane&)>;

// What `body` returns on each of so many ranks.
std::vector<Status> OnRanks(int world, const Body& body) {
  ThreadPool pool(2);
  const std::vector<std::unique_ptr<Communicator>> ranks =
      MakeInProcessWorld({.world = world, .executor = &pool});
  std::vector<Status> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      WorkerLane lane("collectives", &pool);
      results[rank] = body(*ranks[rank], lane);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(RankAgreementTest, IsOkWhereNoneFailedAndAllDoTheSame) {
  EXPECT_THAT(OnRanks(3,
                      [](Communicator& comm, Lane& lane) {
                        return AgreeOn(comm, lane, OkStatus(),
                                       uint64_t{0xfedcba9876543210}, "save");
                      }),
              Each(IsOk()));
}

TEST(RankAgreementTest, TellsAllOfTheFirstFailure) {
  EXPECT_THAT(
      OnRanks(3,
              [](Communicator& comm, Lane& lane) {
                const Status own =
                    comm.rank() == 0
                        ? OkStatus()
                        : IoError("disk " + std::to_string(comm.rank()));
                return AgreeOn(comm, lane, own, 0, "save");
              }),
      Each(StatusIs(ErrorCode::kIoError, "rank 1: disk 1")));
}

TEST(RankAgreementTest, CutsAMessageThatIsTooLong) {
  const std::string most(2048, 'x');
  EXPECT_THAT(OnRanks(2,
                      [&](Communicator& comm, Lane& lane) {
                        return AgreeOn(comm, lane, IoError(most + "y"), 0,
                                       "save");
                      }),
              Each(StatusIs(ErrorCode::kIoError, "rank 0: " + most)));
}

TEST(RankAgreementTest, NamesWhatRanksDoNotDoTheSame) {
  EXPECT_THAT(OnRanks(2,
                      [](Communicator& comm, Lane& lane) {
                        return AgreeOn(comm, lane, OkStatus(),
                                       comm.rank() == 0 ? 4 : 8, "load");
                      }),
              Each(StatusIs(ErrorCode::kInvalidArgument,
                            Says("the ranks do not load the same"))));
}

TEST(RankAgreementTest, SumsWrapIn64Bits) {
  EXPECT_THAT(OnRanks(3,
                      [](Communicator& comm, Lane& lane) {
                        std::array<uint64_t, 2> sums = {
                            static_cast<uint64_t>(comm.rank()), ~uint64_t{0}};
                        CASTOR_RETURN_IF_ERROR(
                            SumOverRanks(comm, lane, sums, "digests"));
                        return sums == std::array<uint64_t, 2>{3, ~uint64_t{2}}
                                   ? OkStatus()
                                   : Internal("another sum");
                      }),
              Each(IsOk()));
}

TEST(RankAgreementTest, OneRankAsksNobody) {
  EXPECT_THAT(OnRanks(1,
                      [](Communicator& comm, Lane& lane) {
                        std::array<uint64_t, 1> sums = {7};
                        CASTOR_RETURN_IF_ERROR(
                            SumOverRanks(comm, lane, sums, "digests"));
                        EXPECT_EQ(sums[0], 7u);
                        EXPECT_EQ(comm.stats().operations, 0);
                        return AgreeOn(comm, lane, IoError("disk"), 0, "save");
                      }),
              Each(StatusIs(ErrorCode::kIoError, "disk")));
}

}  // namespace
}  // namespace castor::internal
