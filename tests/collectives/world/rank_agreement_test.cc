// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/rank_agreement.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/world/layout_digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
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

// What AgreeOn tells each of so many ranks that come with these.
std::vector<Status> Agreed(int world, const std::function<Status(int)>& own,
                           const std::function<uint64_t(int)>& what) {
  return OnRanks(world, [&](Communicator& comm, Lane& lane) {
    return AgreeOn(comm, lane, own(comm.rank()), what(comm.rank()), "save");
  });
}
Status Fine(int) { return OkStatus(); }
uint64_t Same(int) { return 0xfedcba9876543210; }

TEST(RankAgreementTest, IsOkWhereNoneFailedAndAllDoTheSame) {
  EXPECT_THAT(Agreed(3, Fine, Same), Each(IsOk()));
}

TEST(RankAgreementTest, TellsAllOfTheFirstFailure) {
  const auto own = [](int rank) {
    return rank == 0 ? OkStatus() : IoError("disk " + std::to_string(rank));
  };
  EXPECT_THAT(Agreed(3, own, Same),
              Each(StatusIs(ErrorCode::kIoError, "rank 1: disk 1")));
}

TEST(RankAgreementTest, CutsAMessageThatIsTooLong) {
  const std::string most(2048, 'x');
  EXPECT_THAT(Agreed(
                  2, [&](int) { return IoError(most + "y"); }, Same),
              Each(StatusIs(ErrorCode::kIoError, "rank 0: " + most)));
}

TEST(RankAgreementTest, NamesWhatRanksDoNotDoTheSame) {
  EXPECT_THAT(Agreed(2, Fine, [](int rank) { return rank == 0 ? 4 : 8; }),
              Each(StatusIs(ErrorCode::kInvalidArgument,
                            Says("the ranks do not save the same"))));
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

struct Packing {
  std::vector<ParamSpec> params = {{"a", {100}, DType::kF32, true},
                                   {"b", {200}, DType::kF32, true},
                                   {"c", {0}, DType::kF32, true},
                                   {"d", {300}, DType::kF32, true}};
  Elements chunk_size{512};
  PackOptions options = {.world = 2, .align = Elements(64)};

  uint64_t Digest() const {
    const Elements sizes[] = {chunk_size};
    return LayoutDigest(PackChunks(params, sizes, options).value());
  }
};

TEST(LayoutDigestTest, IsTheSameForTheSameLayout) {
  Packing renamed;
  renamed.params[0].name = "another";
  EXPECT_EQ(Packing().Digest(), Packing().Digest());
  EXPECT_EQ(renamed.Digest(), Packing().Digest());  // names lie nowhere
}

TEST(LayoutDigestTest, KnowsEveryDifferenceOfPlace) {
  const std::function<void(Packing&)> changes[] = {
      [](Packing& p) { p.chunk_size = Elements(768); },
      [](Packing& p) { p.options.world = 1; },
      [](Packing& p) { p.options.align = Elements(128); },
      [](Packing& p) {
        for (auto& each : p.params) each.dtype = DType::kBF16;
      },
      [](Packing& p) {
        for (auto& each : p.params) each.trainable = false;
      },
      [](Packing& p) { std::swap(p.params[0], p.params[1]); },
      [](Packing& p) { p.params.pop_back(); }};
  std::set<uint64_t> digests = {Packing().Digest()};
  for (const auto& change : changes) {
    Packing other;
    change(other);
    digests.insert(other.Digest());
  }
  EXPECT_EQ(digests.size(), 8u);
}

}  // namespace
}  // namespace castor::internal
