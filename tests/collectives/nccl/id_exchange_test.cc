// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/id_exchange.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::HasSubstr;

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
                       HasSubstr("rank 0 told rank 2 nothing in 0.05 s")));
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

TEST(IdExchangeTest, AFileThatIsNotThisRunsIsRefused) {
  const TempDir dir;
  const std::string path = (dir.path() / "ids").string();
  std::vector<std::byte> data = Filled(1);
  FileIdExchange early(path, kSoonNs);
  EXPECT_THAT(
      early.Broadcast(1, data),
      StatusIs(ErrorCode::kUnavailable, HasSubstr("rank 1 does not see")));
  std::ofstream(path) << "something else";
  FileIdExchange other(path, kSoonNs);
  EXPECT_THAT(other.Broadcast(1, data),
              StatusIs(ErrorCode::kUnavailable,
                       HasSubstr("has 14 bytes instead of 200")));
  FileIdExchange zero(path);
  EXPECT_THAT(
      zero.Broadcast(0, data),
      StatusIs(ErrorCode::kUnavailable, HasSubstr("an earlier run left it")));
  FileIdExchange nowhere((dir.path() / "no/folder").string());
  EXPECT_THAT(nowhere.Broadcast(0, data),
              StatusIs(ErrorCode::kUnavailable, HasSubstr("cannot create")));
  // What is another's stays.
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace castor
