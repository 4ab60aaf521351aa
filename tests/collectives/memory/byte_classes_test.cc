// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/byte_classes.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string_view>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/memory/memory_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/run_event.h"
#include "tests/collectives/memory/random_memory_input.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

TEST(ByteClassesTest, NamesDiffer) {
  const StateNames adam;  // owns what the names view
  std::set<std::string_view> names;
  for (int c = 0; c < kByteClasses; ++c) {
    names.insert(ByteClassName(static_cast<ByteClass>(c), adam));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kByteClasses));
  EXPECT_EQ(names.count("unknown"), 0u);
}

TEST(ByteClassesTest, HasRowsForTheStatesThatTheOptimizerKeeps) {
  ByteTable table;
  table.states = StateNames({"momentum_buffer"});
  std::vector<std::string_view> names;
  for (const ByteClass kind : table.classes())
    names.push_back(table.name(kind));
  EXPECT_THAT(names, testing::ElementsAre(
                         "param", "grad", "master", "momentum_buffer",
                         "rounding", "gathered", "prefetch", "kept", "spare",
                         "staging", "norm", "communicator", "leases"));
}

// Rows are what slots hold, and add up to the slots.
TEST(ByteClassesTest, RowsAddUpToTheSlotsOfEveryTier) {
  std::mt19937_64 random(TestSeed(20261122));
  int fit = 0;
  int spared = 0;    // with places in host memory
  int crossing = 0;  // with places on NVMe beside homes in host memory
  for (int i = 0; i < 300; ++i) {
    RandomMemoryInput made(random, 12);
    made.input.spare_places = i % 2 == 0;
    const Result<MemoryPlan> memory = PlanMemory(made.input);
    if (!memory.ok()) continue;
    ++fit;
    spared += memory->spare_bytes[TierIndex(Tier::kHost)] > Bytes(0);
    crossing += std::ranges::any_of(memory->states, [](const auto& states) {
      return std::ranges::any_of(states, [](const StatePlace& place) {
        return place.home == Tier::kHost && place.nvme_spare_class >= 0;
      });
    });
    const Bytes buffers(512 * static_cast<int64_t>(random() % 3));
    const ByteTable table = ByteTableOf(*memory, buffers);
    EXPECT_EQ(table.total(Tier::kDevice),
              SlotsBytes(memory->device_classes) + buffers);
    EXPECT_EQ(table.total(Tier::kHost), SlotsBytes(memory->host_classes));
    EXPECT_EQ(table.total(Tier::kNvme), SlotsBytes(memory->nvme_classes));
    EXPECT_LE(table.total(Tier::kHost), made.input.host_budget);
    EXPECT_LE(table.total(Tier::kNvme),
              made.input.nvme_budget.value_or(Bytes(0)));
    for (size_t k = 0; k < kStateKinds; ++k) {
      Bytes kept;
      for (const auto& states : memory->states) kept += states[k].bytes;
      EXPECT_EQ(table.total(static_cast<ByteClass>(k)), kept);
    }
    EXPECT_EQ(table.at(ByteClass::kCommunicator, Tier::kDevice), buffers);
    EXPECT_EQ(table.total(ByteClass::kStaging),
              table.at(ByteClass::kStaging, Tier::kHost));
    EXPECT_EQ(table.total(ByteClass::kNorm) > Bytes(0),
              memory->norm_class >= 0);
    // Of the gathered slots what is needed comes first, then what prefetch may
    // use, then the rest.
    Bytes gathered;
    for (size_t c = 0; c < memory->problem.slots.size(); ++c) {
      gathered +=
          memory->device_classes[c].slot_bytes * memory->problem.slots[c];
    }
    EXPECT_EQ(table.total(ByteClass::kGathered) +
                  table.total(ByteClass::kPrefetch) +
                  table.total(ByteClass::kKept),
              gathered);
    if (memory->problem.prefetch.depth == 0) {
      EXPECT_EQ(table.total(ByteClass::kPrefetch), Bytes(0));
    }
  }
  EXPECT_GT(fit, 30);
  EXPECT_GT(spared, 5);
  EXPECT_GT(crossing, 1);
}

}  // namespace
}  // namespace castor
