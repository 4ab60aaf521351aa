// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/chunk_states.h"

#include <array>
#include <cstddef>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gtest/gtest.h"
#include "placement/run_event.h"

namespace castor::internal {
namespace {

Bytes On(const std::array<Bytes, kStateKinds>& bytes, StateKind state) {
  return bytes[static_cast<size_t>(state)];
}

// One chunk of 5120 elements, on two ranks.
ChunkLayout Layout(DType dtype, bool trainable) {
  ParamSpec spec;
  spec.name = "w";
  spec.shape = {5120};
  spec.dtype = dtype;
  spec.trainable = trainable;
  PackOptions pack;
  pack.world = 2;
  const Elements sizes[] = {Elements(5120)};
  return *PackChunks(std::vector<ParamSpec>{spec}, sizes, pack);
}

TEST(ChunkStatesTest, ShardsAreRoundedUpToWhatTheirTierWants) {
  const ChunkLayout layout = Layout(DType::kBF16, true);
  const Sharding sharding{.stage = 3, .world = 2};
  const ChunkStates states = StatesOf(layout, sharding, ChunkId(0));
  EXPECT_EQ(On(states.device_bytes, StateKind::kParam), Bytes(5120));
  EXPECT_EQ(On(states.host_bytes, StateKind::kParam), Bytes(8192));
  EXPECT_EQ(On(states.device_bytes, StateKind::kGrad), Bytes(5120));
  EXPECT_EQ(On(states.device_bytes, StateKind::kMaster), Bytes(10240));
  EXPECT_EQ(On(states.host_bytes, StateKind::kExpAvgSq), Bytes(12288));
  // Forward, backward, gradient; the update writes the device's copy.
  EXPECT_EQ(states.moved_none_on_device, Bytes(3 * 5120));
  EXPECT_EQ(states.moved_params_on_device, Bytes(2 * 5120));
}

TEST(ChunkStatesTest, WhatIsReplicatedIsKeptWholeAndRefreshed) {
  const ChunkLayout layout = Layout(DType::kF32, true);
  const Sharding sharding{.stage = 2, .world = 2};
  const ChunkStates states = StatesOf(layout, sharding, ChunkId(0));
  EXPECT_EQ(On(states.device_bytes, StateKind::kParam), Bytes(20480));
  EXPECT_EQ(On(states.device_bytes, StateKind::kGrad), Bytes(10240));
  EXPECT_EQ(On(states.device_bytes, StateKind::kMaster), Bytes(0));
  EXPECT_EQ(states.moved_none_on_device, Bytes(3 * 20480 + 10240));
  // Its own slice crosses both ways: it is its own master.
  EXPECT_EQ(states.moved_params_on_device, Bytes(2 * 10240 + 10240));
}

TEST(ChunkStatesTest, FrozenParametersHaveNoOtherStates) {
  const ChunkLayout layout = Layout(DType::kBF16, false);
  const Sharding sharding{.stage = 3, .world = 2};
  const ChunkStates states = StatesOf(layout, sharding, ChunkId(0));
  for (const StateKind state : {StateKind::kGrad, StateKind::kMaster,
                                StateKind::kExpAvg, StateKind::kExpAvgSq}) {
    EXPECT_EQ(On(states.host_bytes, state), Bytes(0)) << StateKindName(state);
  }
  EXPECT_EQ(states.moved_params_on_device, Bytes(0));
}

TEST(ChunkStatesTest, FetchesCostMoreFromFurtherAway) {
  EXPECT_GT(FetchCost(Tier::kDevice), 0);
  EXPECT_LT(FetchCost(Tier::kDevice), FetchCost(Tier::kHost));
  EXPECT_LT(FetchCost(Tier::kHost), FetchCost(Tier::kNvme));
}

}  // namespace
}  // namespace castor::internal
