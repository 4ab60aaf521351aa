// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How operations fail: on every rank, soon, and saying who and where.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/rank_scope.h"
#include "gmock/gmock.h"
#include "tests/support/contracts/communicator_contract.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

// Each way in which the last rank can depart from what the others do.
TEST_P(CommunicatorContract, AMismatchFailsEveryRankAndNamesIt) {
  if (world() < 2) GTEST_SKIP() << "one rank agrees with itself";
  struct Departure {
    std::string_view name;
    std::function<void(RankUnderTest&, float*)> call;
  };
  const auto gather = [](RankUnderTest& self, float* data, int64_t shard,
                         CollectiveTag tag) {
    self.comm.AllGather(self.lane, data + self.rank() * shard, data,
                        Elements(shard), DType::kF32, tag);
  };
  const std::vector<Departure> departures = {
      {"kind",
       [](RankUnderTest& self, float* data) {
         self.comm.ReduceScatter(self.lane, data, data + self.rank() * 16,
                                 Elements(16), DType::kF32, Tag(31, 41));
       }},
      {"chunk", [&](RankUnderTest& self,
                    float* data) { gather(self, data, 16, Tag(32, 41)); }},
      {"moment", [&](RankUnderTest& self,
                     float* data) { gather(self, data, 16, Tag(31, 42)); }},
      {"purpose",
       [&](RankUnderTest& self, float* data) {
         gather(self, data, 16, Tag(31, 41, "other"));
       }},
      {"size", [&](RankUnderTest& self,
                   float* data) { gather(self, data, 8, Tag(31, 41)); }},
      {"dtype",
       [](RankUnderTest& self, float* data) {
         self.comm.AllGather(self.lane, data + self.rank() * 16, data,
                             Elements(16), DType::kI32, Tag(31, 41));
       }},
  };
  for (const Departure& departure : departures) {
    Notes messages;
    MakeWorld()->ForEachRank([&](RankUnderTest& self) {
      std::vector<float> data(static_cast<size_t>(16 * self.world()));
      // One that goes well, so that the position is not zero.
      self.comm.Barrier(self.lane, Tag(-1, 40, "start"));
      if (self.rank() == self.world() - 1) {
        departure.call(self, data.data());
      } else {
        gather(self, data.data(), 16, Tag(31, 41));
      }
      const Status status = self.lane.Drain();
      EXPECT_THAT(status,
                  StatusIs(ErrorCode::kFailedPrecondition,
                           Says("operation 1", "rank ", "chunk 31", "moment 41",
                                "rank " + std::to_string(self.world() - 1))))
          << departure.name;
      EXPECT_EQ(self.comm.Health().message(), status.message());
      // Later operations end alike, on any lane.
      self.comm.Barrier(self.lane2, Tag(-1, 43, "later"));
      EXPECT_EQ(self.lane2.Drain().message(), status.message());
      messages.Add(std::string(status.message()));
    });
    const auto all = messages.all();
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 1u);
  }
}

TEST_P(CommunicatorContract, MismatchedReductionsAndRootsAreSeen) {
  if (world() < 2) GTEST_SKIP() << "one rank agrees with itself";
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    uint64_t value = 1;
    const bool departs = self.rank() == 0;
    self.comm.AllReduce(self.lane, &value, Elements(1), DType::kU64,
                        departs ? ReduceOp::kMin : ReduceOp::kMax, Tag(-1, 1));
    EXPECT_THAT(self.lane.Drain(), StatusIs(ErrorCode::kFailedPrecondition,
                                            Says("min of 1", "max of 1")));
  });
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    uint64_t value = 1;
    const bool departs = self.rank() == 0;
    self.comm.Broadcast(self.lane, &value, Bytes(8), departs ? 0 : 1,
                        Tag(-1, 1));
    EXPECT_THAT(self.lane.Drain(),
                StatusIs(ErrorCode::kFailedPrecondition,
                         Says("from rank 0", "from rank 1")));
  });
}

TEST_P(CommunicatorContract, AbortFailsWhatIsPendingAndWhatComesLater) {
  if (world() < 2) GTEST_SKIP() << "one rank is never waited for";
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    if (self.rank() == 0) {
      self.comm.Abort(DataLoss("checksum of rank 0"));
    } else {
      self.comm.Barrier(self.lane, Tag(3, 7, "pending"));
      EXPECT_THAT(self.lane.Drain(),
                  StatusIs(ErrorCode::kDataLoss, "checksum of rank 0"));
    }
    self.comm.Barrier(self.lane2, Tag(3, 8, "later"));
    EXPECT_THAT(self.lane2.Drain(),
                StatusIs(ErrorCode::kDataLoss, "checksum of rank 0"));
    // The first reason stays.
    self.comm.Abort(IoError("too late"));
    EXPECT_THAT(self.comm.Health(),
                StatusIs(ErrorCode::kDataLoss, "checksum of rank 0"));
  });
}

TEST_P(CommunicatorContract, AbortEndsAWorldOfAnySize) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    self.comm.Barrier(self.lane, Tag(-1, 0, "fine"));
    EXPECT_THAT(self.lane.Drain(), IsOk());
    self.comm.Abort(Aborted("stop"));
    self.comm.Barrier(self.lane, Tag(-1, 1, "later"));
    EXPECT_THAT(self.lane.Drain(), StatusIs(ErrorCode::kAborted, "stop"));
    EXPECT_THAT(self.comm.Health(), StatusIs(ErrorCode::kAborted, "stop"));
  });
}

TEST_P(CommunicatorContract, ARankThatDoesNotComeIsNamed) {
  if (world() < 2) GTEST_SKIP() << "one rank is never waited for";
  MakeWorld(50'000'000)->ForEachRank([](RankUnderTest& self) {
    const int missing = self.world() - 1;
    if (self.rank() != missing) {
      self.comm.Barrier(self.lane, Tag(5, 9, "meet"));
      EXPECT_THAT(
          self.lane.Drain(),
          StatusIs(ErrorCode::kAborted, Says("rank " + std::to_string(missing),
                                             "chunk 5", "moment 9")));
    } else {
      while (self.comm.Health().ok()) std::this_thread::yield();
      self.comm.Barrier(self.lane, Tag(5, 9, "meet"));
      EXPECT_THAT(self.lane.Drain(), StatusIs(ErrorCode::kAborted));
    }
  });
}

// The others need not wait for the timeout.
TEST_P(CommunicatorContract, ALaneThatFailedBeforeItsOperationEndsTheWorld) {
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int bad = self.world() - 1;
    if (self.rank() == bad) {
      self.lane.Run([] { return IoError("disk"); });
    }
    self.comm.Barrier(self.lane, Tag(5, 9, "meet"));
    const Status status = self.lane.Drain();
    const auto skipped = StatusIs(
        ErrorCode::kAborted,
        Says("rank " + std::to_string(bad) + " skips", "chunk 5", "moment 9"));
    if (self.rank() == bad) {
      EXPECT_THAT(status, StatusIs(ErrorCode::kIoError, "disk"));
    } else {
      EXPECT_THAT(status, skipped);
    }
    EXPECT_THAT(self.comm.Health(), skipped);
  });
}

// Among the ranks of a group, and across groups.

CollectiveTag ScopedTag(int32_t chunk, int64_t moment, RankScope scope) {
  return {ChunkId(chunk), moment, "test", scope};
}

// Every rank by itself.
constexpr RankScope kAlone{Among::kGroup, 1};

// Groups are one world: one that departs from what others do is found out,
// though no data goes between them, and all end with the same words.
TEST_P(CommunicatorContract, AGroupThatDepartsFromAnotherFailsBoth) {
  if (world() < 2) GTEST_SKIP() << "one rank agrees with itself";
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    const int last = self.world() - 1;
    std::vector<float> value(1);
    self.comm.AllGather(self.lane, value.data(), value.data(), Elements(1),
                        DType::kF32,
                        ScopedTag(self.rank() == last ? 32 : 31, 41, kAlone));
    EXPECT_THAT(self.lane.Drain(),
                StatusIs(ErrorCode::kFailedPrecondition,
                         Says("rank " + std::to_string(last), "chunk 31",
                              "chunk 32", "moment 41", "groups of 1")));
  });
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    std::vector<float> chunk(static_cast<size_t>(self.world()));
    const RankScope scope{self.rank() == 0 ? Among::kGroup : Among::kReplicas,
                          self.rank() == 0 ? self.world() : 1};
    self.comm.AllGather(self.lane, &chunk[static_cast<size_t>(self.rank())],
                        chunk.data(), Elements(1), DType::kF32,
                        ScopedTag(5, 6, scope));
    EXPECT_THAT(self.lane.Drain(),
                StatusIs(ErrorCode::kFailedPrecondition,
                         Says("in groups of", "across groups of 1")));
  });
}

TEST_P(CommunicatorContract, ARankOfAnotherGroupThatDoesNotComeIsNamed) {
  if (world() < 2) GTEST_SKIP() << "one rank is never waited for";
  MakeWorld(50'000'000)->ForEachRank([](RankUnderTest& self) {
    const int missing = self.world() - 1;
    if (self.rank() == missing) {
      while (self.comm.Health().ok()) std::this_thread::yield();
    }
    std::vector<float> value(1);
    self.comm.AllGather(self.lane, value.data(), value.data(), Elements(1),
                        DType::kF32, ScopedTag(5, 9, kAlone));
    EXPECT_THAT(
        self.lane.Drain(),
        StatusIs(ErrorCode::kAborted, Says("rank " + std::to_string(missing),
                                           "chunk 5", "moment 9")));
  });
}

TEST_P(CommunicatorContract, AbortEndsEveryGroup) {
  if (world() < 2) GTEST_SKIP() << "there is one group only";
  MakeWorld()->ForEachRank([](RankUnderTest& self) {
    if (self.rank() == 0) {
      self.comm.Abort(DataLoss("checksum of rank 0"));
    }
    std::vector<float> value(1);
    self.comm.AllGather(self.lane, value.data(), value.data(), Elements(1),
                        DType::kF32, ScopedTag(3, 7, kAlone));
    EXPECT_THAT(self.lane.Drain(),
                StatusIs(ErrorCode::kDataLoss, "checksum of rank 0"));
  });
}

}  // namespace
}  // namespace castor
