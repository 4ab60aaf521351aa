// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shards/shard_places.h"

#include <memory>
#include <utility>

#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "placement/plan.h"
#include "tests/support/aligned_bytes.h"

namespace castor {
namespace {

class ShardPlacesTest : public testing::Test {
 protected:
  ShardPlacesTest() {
    problem_.param_class = {0, 0, 0, 0, 0};
    problem_.shards_per_slot = {2};
    problem_.slots = {3};
    const SlotClass classes[] = {{Bytes(1024), 3}};
    device_ = std::make_unique<TierPool>(*TierPool::Create(
        Tier::kDevice, Bytes(3 * 1024), classes, memory_.data()));
    places_ = std::make_unique<ShardPlaces>(device_.get(), &problem_);
  }

  AlignedBytes memory_{Bytes(3 * 1024)};
  PlanProblem problem_;
  std::unique_ptr<TierPool> device_;
  std::unique_ptr<ShardPlaces> places_;
};

TEST_F(ShardPlacesTest, SlotsGivePlacesSideBySide) {
  EXPECT_FALSE(places_->has_place(ChunkId(0)));
  places_->Hold(0, 2);
  EXPECT_EQ(device_->free_slots(0), 1);
  for (int c = 0; c < 4; ++c) {
    EXPECT_EQ(places_->Take(ChunkId(c)).data, memory_.data() + 512 * c);
    EXPECT_EQ(places_->data(ChunkId(c)), memory_.data() + 512 * c);
  }
  EXPECT_FALSE(places_->has_place(ChunkId(4)));
  places_->Drop(ChunkId(1));
  EXPECT_FALSE(places_->has(ChunkId(1)));
  EXPECT_EQ(places_->Take(ChunkId(4)).data, memory_.data() + 512);
}

TEST_F(ShardPlacesTest, APlaceIsFreeWhenItsLastReaderIsDone) {
  places_->Hold(0, 1);
  EXPECT_TRUE(places_->Take(ChunkId(0)).free_after.done());
  const EventSource fetched;
  const EventSource sent;
  places_->SetReady(ChunkId(0), fetched.event());
  EXPECT_FALSE(places_->ready(ChunkId(0)).done());
  fetched.Complete();
  EXPECT_TRUE(places_->ready(ChunkId(0)).done());
  places_->AddReader(ChunkId(0), sent.event());
  places_->Drop(ChunkId(0));
  const ShardPlaces::Place place = places_->Take(ChunkId(1));
  EXPECT_FALSE(place.free_after.done());
  sent.Complete();
  EXPECT_TRUE(place.free_after.done());
}

TEST_F(ShardPlacesTest, WhatLiesInSlotsGivenBackGoes) {
  places_->Hold(0, 2);
  for (int c = 0; c < 3; ++c) places_->Take(ChunkId(c));
  const EventSource sent;
  places_->AddReader(ChunkId(2), sent.event());
  EXPECT_TRUE(places_->GiveOne(0));
  EXPECT_TRUE(places_->has(ChunkId(1)));
  EXPECT_FALSE(places_->has(ChunkId(2)));
  EXPECT_EQ(device_->free_slots(0), 2);
  // Whoever takes the slot, after the one that was never held, waits for what
  // still reads a part of it.
  const Slot other = *device_->Take(0);
  const Slot again = *device_->Take(0);
  EXPECT_EQ(again.data, memory_.data() + 1024);
  EXPECT_FALSE(again.free_after.done());
  sent.Complete();
  EXPECT_TRUE(again.free_after.done());
  device_->Give(again, Event());
  device_->Give(other, Event());
  places_->Clear();
  EXPECT_FALSE(places_->has(ChunkId(0)));
  EXPECT_FALSE(places_->GiveOne(0));
  EXPECT_EQ(device_->free_slots(0), 3);
}

TEST_F(ShardPlacesTest, NoMoreSlotsAreHeldThanAreFree) {
  Slot other = *device_->Take(0);
  places_->Hold(0, 3);
  EXPECT_EQ(device_->free_slots(0), 0);
  EXPECT_TRUE(places_->has_place(ChunkId(0)));
  device_->Give(other, Event());
  places_->Hold(0, 0);
  EXPECT_EQ(device_->free_slots(0), 3);
}

}  // namespace
}  // namespace castor
