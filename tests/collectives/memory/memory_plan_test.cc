// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/memory_plan.h"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/memory/tier_pool.h"
#include "placement/plan.h"
#include "tests/collectives/memory/memory_plan_checker.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// `chunks` chunks of 4 KiB fp32 each, one parameter each.
ChunkLayout PlainLayout(int chunks, int world) {
  std::vector<ParamSpec> specs;
  for (int c = 0; c < chunks; ++c) {
    specs.push_back({"p" + std::to_string(c), {1024}, DType::kF32, true});
  }
  PackOptions pack;
  pack.world = world;
  const Elements sizes[] = {Elements(1024)};
  return *PackChunks(specs, sizes, pack);
}

MemoryPlanInput Plain(const ChunkLayout& layout, int stage, Bytes device,
                      Bytes host, std::optional<Bytes> nvme = std::nullopt) {
  MemoryPlanInput input;
  input.layout = &layout;
  input.sharding = {stage, layout.world(), 0};
  input.device_budget = device;
  input.host_budget = host;
  input.nvme_budget = nvme;
  input.declared.held = {{{ParamId(0)}, {ParamId(0)}}};
  return input;
}

// And no host memory is taken: Gemini pins copies that nobody uses (D11).
TEST(MemoryPlanTest, EverythingStaysOnTheDeviceWhenItFits) {
  const ChunkLayout layout = PlainLayout(4, 1);
  // Four states of four chunks, and a slot for one gradient.
  const Bytes all = KiB(4) * 16 + KiB(4);
  MemoryPlanInput input = Plain(layout, 3, all, Bytes(0));
  const Result<MemoryPlan> plan = PlanMemory(input);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->home_bytes[TierIndex(Tier::kDevice)], KiB(4) * 16);
  EXPECT_EQ(plan->problem.slots, std::vector<int64_t>{1});
  EXPECT_EQ(plan->problem.param_class, std::vector<int32_t>(4, kNoSlotClass));
  EXPECT_EQ(plan->staging_slots, 0);
  EXPECT_EQ(plan->staging_class, -1);
  EXPECT_TRUE(plan->host_classes.empty());
  input.device_budget -= Bytes(1);
  EXPECT_THAT(PlanMemory(input), Not(IsOk()));
}

TEST(MemoryPlanTest, ShardedParametersOnTheDeviceStillNeedAGatheredSlot) {
  const ChunkLayout layout = PlainLayout(4, 2);
  const Bytes homes = KiB(4) * 4 * 4 / 2;
  const Result<MemoryPlan> plan =
      PlanMemory(Plain(layout, 3, homes + KiB(4) * 2, Bytes(0)));
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->home_bytes[0], homes);
  EXPECT_EQ(plan->problem.param_class, std::vector<int32_t>(4, 0));
  EXPECT_EQ(plan->problem.slots, std::vector<int64_t>{2});
}

TEST(MemoryPlanTest, WhatHomesLeaveOverKeepsMoreCopies) {
  const ChunkLayout layout = PlainLayout(8, 2);
  MemoryPlanInput input = Plain(layout, 3, KiB(4) * 5, MiB(1));
  input.declared.held = {{{ParamId(0)}, {}}};
  const Result<MemoryPlan> plan = PlanMemory(input);
  ASSERT_THAT(plan, IsOk());
  EXPECT_LE(SumOf(plan->device_classes), KiB(4) * 5);
  EXPECT_GT(SumOf(plan->device_classes), KiB(4) * 4);
  EXPECT_GE(plan->problem.slots[0], 1);
}

TEST(MemoryPlanTest, CopiesStayInWhatIsLeftOnlyWhereAskedFor) {
  const ChunkLayout layout = PlainLayout(20, 2);
  MemoryPlanInput input = Plain(layout, 3, MiB(64), Bytes(0));
  input.prefetch.depth = 3;
  const Result<MemoryPlan> keeps = PlanMemory(input);
  ASSERT_THAT(keeps, IsOk());
  // Parameters and gradients of all.
  EXPECT_EQ(keeps->problem.slots[0], 2 * 20);
  input.keep_copies = false;
  const Result<MemoryPlan> bare = PlanMemory(input);
  ASSERT_THAT(bare, IsOk());
  EXPECT_EQ(bare->problem.slots[0], bare->needed_slots[0] + 3);
  EXPECT_LT(bare->problem.slots[0], 10);
}

// Chunks of 4 KiB, then larger ones.
ChunkLayout TwoSizes(int small, int large, int64_t elements) {
  std::vector<ParamSpec> specs;
  for (int c = 0; c < small + large; ++c) {
    specs.push_back({"p" + std::to_string(c),
                     {c < small ? 1024 : elements},
                     DType::kF32,
                     true});
  }
  PackOptions pack;
  pack.world = 2;
  const Elements sizes[] = {Elements(1024)};
  return *PackChunks(specs, sizes, pack);
}

TEST(MemoryPlanTest, ChunksOfNearlyOneSizeShareSlotsThatTheyDoNotHoldAtOnce) {
  const ChunkLayout layout = TwoSizes(1, 4, 1280);
  MemoryPlanInput input = Plain(layout, 3, MiB(1), MiB(1));
  const HeldTogether small{{ParamId(0)}, {ParamId(0)}};
  const HeldTogether large{{ParamId(3)}, {ParamId(3)}};
  input.keep_copies = false;
  input.declared.held = {small, large};
  const MemoryPlan shared = *PlanMemory(input);
  EXPECT_EQ(shared.needed_slots, std::vector<int64_t>{2});
  EXPECT_EQ(shared.device_classes[0].slot_bytes, KiB(5));
  EXPECT_EQ(shared.problem.param_class, std::vector<int32_t>(5, 0));
  const std::vector<int64_t> apart = {2, 2};
  // A step that is only estimated may hold both at once.
  input.declared.estimate = true;
  EXPECT_EQ(PlanMemory(input)->needed_slots, apart);
  input.declared.estimate = false;
  // Held at once, each in slots of the larger would take more.
  input.declared.held = {{{ParamId(0), ParamId(3)}, {ParamId(0), ParamId(3)}}};
  EXPECT_EQ(PlanMemory(input)->needed_slots, apart);
  // One larger chunk would make copies of all others dearer.
  const ChunkLayout few = TwoSizes(4, 1, 1280);
  input.layout = &few;
  input.declared.held = {small, {{ParamId(4)}, {ParamId(4)}}};
  EXPECT_EQ(PlanMemory(input)->needed_slots, apart);
}

TEST(MemoryPlanTest, LeasesHaveASlotOfTheirOwn) {
  const ChunkLayout layout = PlainLayout(2, 1);
  MemoryPlanInput input = Plain(layout, 3, MiB(1), MiB(1));
  input.declared.largest_lease = Bytes(1000);
  const Result<MemoryPlan> plan = PlanMemory(input);
  ASSERT_THAT(plan, IsOk());
  ASSERT_GE(plan->lease_class, 1);
  const SlotClass& lease =
      plan->device_classes[static_cast<size_t>(plan->lease_class)];
  EXPECT_EQ(lease.slot_bytes, Bytes(1024));
  EXPECT_EQ(lease.slots, 1);
}

TEST(MemoryPlanTest, TheWordsOfTheNormCountInTheDeviceBudget) {
  const ChunkLayout layout = PlainLayout(4, 1);
  const Bytes all = KiB(4) * 16 + KiB(4);
  MemoryPlanInput input = Plain(layout, 3, all + KiB(1), Bytes(0));
  input.norm_bytes = Bytes(552);
  const Result<MemoryPlan> plan = PlanMemory(input);
  ASSERT_THAT(plan, IsOk());
  ASSERT_GE(plan->norm_class, 1);
  const SlotClass& norm =
      plan->device_classes[static_cast<size_t>(plan->norm_class)];
  EXPECT_EQ(norm.slot_bytes, KiB(1));
  EXPECT_EQ(norm.slots, 1);
  EXPECT_EQ(SumOf(plan->device_classes), input.device_budget);
  input.device_budget -= Bytes(1);
  EXPECT_THAT(PlanMemory(input), Not(IsOk()));
  input = Plain(layout, 3, KiB(4), MiB(1));
  input.norm_bytes = Bytes(552);
  EXPECT_THAT(
      PlanMemory(input).status(),
      StatusIs(ErrorCode::kInfeasible, HasSubstr("1024 bytes for the norm, ")));
}

TEST(MemoryPlanTest, LeasesWithoutMeaningAreRefused) {
  const ChunkLayout layout = PlainLayout(2, 1);
  MemoryPlanInput input = Plain(layout, 3, MiB(1), MiB(1));
  for (Bytes lease : {Bytes(-1), Bytes(std::numeric_limits<int64_t>::max())}) {
    input.declared.largest_lease = lease;
    EXPECT_THAT(PlanMemory(input).status(),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("lease")));
  }
}

TEST(MemoryPlanTest, AModelWithoutElementsNeedsRoomForLeasesOnly) {
  const ChunkLayout layout = *PackChunks({}, std::span<const Elements>(), {});
  MemoryPlanInput input = Plain(layout, 3, KiB(1), Bytes(0));
  input.declared = {};
  ASSERT_THAT(PlanMemory(input), IsOk());
  EXPECT_TRUE(PlanMemory(input)->device_classes.empty());
  input.declared.largest_lease = KiB(1);
  EXPECT_EQ(PlanMemory(input)->lease_class, 0);
  input.declared.largest_lease = KiB(1) + Bytes(1);
  EXPECT_THAT(PlanMemory(input).status(),
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("raise the device budget by 512 bytes")));
}

TEST(MemoryPlanTest, RefusalsSayWhatIsHeldAndWhatIsMissing) {
  const ChunkLayout layout = PlainLayout(8, 2);
  MemoryPlanInput input = Plain(layout, 3, KiB(7), MiB(1));
  input.declared.largest_lease = KiB(2);
  EXPECT_THAT(
      PlanMemory(input).status(),
      StatusIs(ErrorCode::kInfeasible,
               AllOf(HasSubstr("device budget of 7168 bytes cannot hold"),
                     HasSubstr("2 gathered slots of 4096 bytes, 2048 bytes on "
                               "lease, 10240 bytes in all"),
                     HasSubstr("raise the device budget by 3072 bytes;"))));
  // Where no budget that is raised alone is enough.
  input.offers.emplace();
  EXPECT_THAT(PlanMemory(input).status(),
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("10240 bytes in all; smaller chunks, or")));
  // 32 shards of 2 KiB, each of which takes 4 KiB off the device.
  input = Plain(layout, 3, KiB(8), KiB(40));
  EXPECT_THAT(PlanMemory(input).status(),
              StatusIs(ErrorCode::kInfeasible,
                       AllOf(HasSubstr("131072 bytes of states do not fit"),
                             HasSubstr("there is no NVMe tier"),
                             HasSubstr("raise the host budget by"),
                             HasSubstr("give an NVMe directory with"))));
  input.nvme_budget = KiB(4);
  EXPECT_THAT(PlanMemory(input).status(),
              StatusIs(ErrorCode::kInfeasible,
                       AllOf(HasSubstr("NVMe may hold 4096 bytes"),
                             HasSubstr("raise the NVMe size by"))));
}

TEST(MemoryPlanTest, LimitsThatDoNotFitSayWhichBudgetsAndByHowMuch) {
  const ChunkLayout layout = PlainLayout(8, 1);
  // Parameters whole on the device, the rest in host memory: 32 KiB on the one
  // beside a slot for a gradient, 96 KiB beside staging on the other.
  MemoryPlanInput input = Plain(layout, 3, KiB(36), KiB(96 + 12));
  input.limits.emplace();
  (*input.limits)[0].device = 1.0;
  const Result<MemoryPlan> fits = PlanMemory(input);
  ASSERT_THAT(fits, IsOk());
  EXPECT_EQ(fits->home_bytes,
            (std::array<Bytes, 3>{KiB(32), KiB(96), Bytes()}));
  EXPECT_EQ(fits->problem.prefetch.depth, 0);
  input.device_budget -= Bytes(512);
  input.host_budget -= Bytes(4096);
  EXPECT_THAT(
      PlanMemory(input).status(),
      StatusIs(ErrorCode::kInfeasible,
               AllOf(HasSubstr("device is to be home to 32768 bytes (param "
                               "32768 bytes) beside 4096 bytes for gathered"),
                     HasSubstr("; and host is to be home to 98304 bytes (grad "
                               "32768 bytes, exp_avg"),
                     HasSubstr("; raise both, the device budget by 512 bytes "
                               "and the host budget by 4096 bytes; or "))));
}

}  // namespace
}  // namespace castor
