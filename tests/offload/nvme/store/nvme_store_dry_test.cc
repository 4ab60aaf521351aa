// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A store without files: transfers take their time, and move and check nothing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/lanes/solo_executor.h"
#include "offload/memory/address_slab.h"
#include "offload/memory/slab.h"
#include "offload/nvme/queue/file_calls.h"
#include "offload/nvme/queue/simulated_io_queue.h"
#include "offload/nvme/store/nvme_store.h"
#include "offload/twin/simulated_link.h"
#include "placement/tier_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::ElementsAre;

TEST(NvmeStoreDryTest, HasNoFileAndTakesTheTimeOfADrive) {
  TempDir directory;
  SoloExecutor world;
  TierModel machine;
  machine.nvme_read = LinkModel{1'000'000'000, 0};
  machine.nvme_write = LinkModel{500'000'000, 0};
  SimulatedLinks links(DriveModelOf(machine));
  const auto all = [](int, const void*, size_t size, off_t) {
    return static_cast<ssize_t>(size);
  };
  NvmeStoreOptions options;
  options.drives = {{directory.path(), GiB(64)}};
  options.dry = true;
  options.checksums = &world;
  options.make_queue = [&](size_t) {
    return MakeSimulatedIoQueue({.links = &links,
                                 .executor = &world,
                                 .timer = &world,
                                 .calls = {.pread = all, .pwrite = all}});
  };
  Result<std::unique_ptr<NvmeStore>> store =
      NvmeStore::Create(std::move(options));
  ASSERT_THAT(store, IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  const Result<Slab> memory = MakeAddressSlab(Tier::kHost, MiB(8));
  ASSERT_THAT(memory, IsOk());
  const std::span<std::byte> data(memory->data(),
                                  static_cast<size_t>(MiB(3).count()));
  // What nobody wrote, then a write of it, and half a read is still refused.
  EXPECT_THAT((*store)->Read(GiB(40), data, Event(), "a").Wait(), IsOk());
  EXPECT_EQ(world.NowNs(), MiB(3).count());
  EXPECT_THAT((*store)->Write(GiB(40), data, Event(), "a").Wait(), IsOk());
  EXPECT_EQ(world.NowNs(), 3 * MiB(3).count());
  EXPECT_THAT(
      (*store)
          ->Read(GiB(40), data.subspan(0, data.size() / 3), Event(), "a")
          .Wait(),
      StatusIs(ErrorCode::kInvalidArgument));
  const NvmeStoreStats stats = (*store)->stats();
  EXPECT_EQ(stats.bytes_read, MiB(3));
  EXPECT_EQ(stats.bytes_written, MiB(3));
  EXPECT_THAT((*store)->Close(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(NvmeStoreDryTest, JoinsTheStripesOfATransferThatAreOnOneDrive) {
  TempDir first;
  TempDir second;
  SoloExecutor world;
  SimulatedLinks links(DriveModelOf(TierModel()));
  std::vector<size_t> moved;
  NvmeStoreOptions options;
  options.drives = {{first.path(), GiB(1)}, {second.path(), GiB(1)}};
  options.stripe = MiB(1);
  options.dry = true;
  options.joined = MiB(2);
  options.checksums = &world;
  options.make_queue = [&](size_t) {
    const auto all = [&](int, const void*, size_t size, off_t) {
      moved.push_back(size);
      return static_cast<ssize_t>(size);
    };
    return MakeSimulatedIoQueue({.queue = {.piece = MiB(16)},
                                 .links = &links,
                                 .executor = &world,
                                 .timer = &world,
                                 .calls = {.pread = all, .pwrite = all}});
  };
  const auto store = NvmeStore::Create(std::move(options)).value();
  const Slab memory = MakeAddressSlab(Tier::kHost, MiB(8)).value();
  const std::span<std::byte> data(memory.data(),
                                  static_cast<size_t>(MiB(5).count()));
  // Stripes 0, 2 and 4 are on the first drive.
  ASSERT_THAT(store->Write(Bytes(0), data, Event(), "a").Wait(), IsOk());
  const auto sizes = [&] {
    std::sort(moved.begin(), moved.end());
    return std::exchange(moved, {});
  };
  constexpr size_t kMiB = size_t{1} << 20;
  EXPECT_THAT(sizes(), ElementsAre(kMiB, 2 * kMiB, 2 * kMiB));
  ASSERT_THAT(store->Read(Bytes(0), data, Event(), "a").Wait(), IsOk());
  EXPECT_THAT(sizes(), ElementsAre(kMiB, 2 * kMiB, 2 * kMiB));
  const NvmeStoreStats stats = store->stats();
  EXPECT_EQ(stats.drives[0].bytes_written, MiB(3));
  EXPECT_EQ(stats.drives[1].bytes_written, MiB(2));
  EXPECT_EQ(stats.bytes_read, MiB(5));
  EXPECT_THAT(store->Close(), IsOk());
}

}  // namespace
}  // namespace castor
