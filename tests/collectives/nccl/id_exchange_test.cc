// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/id_exchange.h"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/nccl/control/control_link.h"
#include "collectives/nccl/tcp_id_exchange.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

constexpr int64_t kSoonNs = 50'000'000;

std::vector<std::byte> Filled(int value) {
  return std::vector<std::byte>(200, std::byte(value));
}

// Two broadcasts among three ranks, each with the exchange that `of` gives it.
void ExpectTwoBroadcasts(const std::function<IdExchange&(int rank)>& of) {
  std::vector<std::vector<std::byte>> got(6);
  std::vector<std::thread> threads;
  for (int rank = 2; rank >= 0; --rank) {
    threads.emplace_back([&, rank] {
      for (int call = 0; call < 2; ++call) {
        std::vector<std::byte> data = Filled(rank == 0 ? 7 + call : 0);
        EXPECT_THAT(of(rank).Broadcast(rank, data), IsOk());
        got[static_cast<size_t>(rank * 2 + call)] = data;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i], Filled(7 + static_cast<int>(i % 2)));
  }
}

TEST(IdExchangeTest, ThreadsHearWhatRankZeroBrings) {
  ThreadIdExchange exchange;
  ExpectTwoBroadcasts([&](int) -> IdExchange& { return exchange; });
  ThreadIdExchange alone(kSoonNs);
  std::vector<std::byte> data = Filled(0);
  EXPECT_THAT(alone.Broadcast(2, data),
              StatusIs(ErrorCode::kUnavailable,
                       Says("rank 0 told rank 2 nothing in 0.05 s")));
}

TEST(IdExchangeTest, AFunctionDoesWhatItDoes) {
  FunctionIdExchange exchange([](int rank, std::span<std::byte> data) {
    if (rank == 1) return Unavailable("no store");
    data[0] = std::byte{9};
    return OkStatus();
  });
  std::vector<std::byte> data = Filled(0);
  EXPECT_THAT(exchange.Broadcast(0, data), IsOk());
  EXPECT_EQ(data[0], std::byte{9});
  EXPECT_THAT(exchange.Broadcast(1, data),
              StatusIs(ErrorCode::kUnavailable, "no store"));
}

TEST(IdExchangeTest, AFileServesAndGoes) {
  const TempDir dir;
  const std::string path = (dir.path() / "ids").string();
  {
    std::vector<std::unique_ptr<FileIdExchange>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::make_unique<FileIdExchange>(path));
    }
    ExpectTwoBroadcasts([&](int rank) -> IdExchange& {
      return *ranks[static_cast<size_t>(rank)];
    });
    EXPECT_TRUE(std::filesystem::exists(path + ".1"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// A port of this machine that nobody listens on now.
int FreePort() {
  const auto listener = internal::ControlListener::Open("127.0.0.1");
  return listener->address().port;
}

TcpIdExchangeOptions At(int port, int world, const std::string& run) {
  return {.host = "127.0.0.1",
          .port = port,
          .world = world,
          .run = run,
          .timeout_ns = 20'000'000'000};
}

// Rank 0 comes last: the others knock until it listens.
TEST(IdExchangeTest, AHostAndAPortServe) {
  const int port = FreePort();
  std::vector<std::unique_ptr<TcpIdExchange>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<TcpIdExchange>(At(port, 3, "job 7")));
  }
  ExpectTwoBroadcasts([&](int rank) -> IdExchange& {
    return *ranks[static_cast<size_t>(rank)];
  });
  TcpIdExchange alone(At(port, 1, "job 7"));
  std::vector<std::byte> data = Filled(3);
  EXPECT_THAT(alone.Broadcast(0, data), IsOk());
}

TEST(IdExchangeTest, RanksThatKnowAnotherRunOrNumberAreRefused) {
  const int port = FreePort();
  std::vector<std::byte> data = Filled(1);
  TcpIdExchangeOptions soon = At(port, 2, "job 7");
  soon.timeout_ns = kSoonNs;
  EXPECT_THAT(TcpIdExchange(soon).Broadcast(1, data),
              StatusIs(ErrorCode::kUnavailable,
                       Says("127.0.0.1", "port " + std::to_string(port))));
  EXPECT_THAT(TcpIdExchange(soon).Broadcast(0, data),
              StatusIs(ErrorCode::kUnavailable, Says("rank 1")));
  // A port that somebody else has.
  const auto taken = internal::ControlListener::Open("127.0.0.1");
  EXPECT_THAT(
      TcpIdExchange(At(taken->address().port, 2, "job 7")).Broadcast(0, data),
      StatusIs(ErrorCode::kUnavailable, Says("cannot listen")));
  // One believes that there are three.
  Status statuses[2];
  std::thread zero([&] {
    std::vector<std::byte> own = Filled(1);
    statuses[0] = TcpIdExchange(At(port, 2, "job 7")).Broadcast(0, own);
  });
  statuses[1] = TcpIdExchange(At(port, 3, "job 7")).Broadcast(1, data);
  zero.join();
  for (const Status& status : statuses) {
    EXPECT_THAT(status,
                StatusIs(ErrorCode::kFailedPrecondition,
                         Says("rank 0 has 2 ranks", "rank 1 has 3 ranks")));
  }
}

TEST(IdExchangeTest, AFileThatIsNotThisRunsIsRefused) {
  const TempDir dir;
  const std::string path = (dir.path() / "ids").string();
  std::vector<std::byte> data = Filled(1);
  FileIdExchange early(path, kSoonNs);
  EXPECT_THAT(early.Broadcast(1, data),
              StatusIs(ErrorCode::kUnavailable, Says("rank 1 does not see")));
  std::ofstream(path) << "something else";
  FileIdExchange other(path, kSoonNs);
  EXPECT_THAT(
      other.Broadcast(1, data),
      StatusIs(ErrorCode::kUnavailable, Says("has 14 bytes instead of 200")));
  FileIdExchange zero(path);
  EXPECT_THAT(
      zero.Broadcast(0, data),
      StatusIs(ErrorCode::kUnavailable, Says("an earlier run left it")));
  FileIdExchange nowhere((dir.path() / "no/folder").string());
  EXPECT_THAT(nowhere.Broadcast(0, data),
              StatusIs(ErrorCode::kUnavailable, Says("cannot create")));
  // What is another's stays.
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace castor
