// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/twin/simulated_link.h"

#include <cstdint>

#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "placement/tier_model.h"

namespace castor {
namespace {

// One byte in a nanosecond, which keeps the numbers below short.
constexpr LinkModel kByteInNs = {.bytes_per_second = 1'000'000'000,
                                 .latency_ns = 10};
// Four bytes.
constexpr LinkModel kFast = {.bytes_per_second = 4'000'000'000,
                             .latency_ns = 0};

SimulatedLinkModels BothWays(Duplex duplex) {
  return {.to_device = kByteInNs,
          .from_device = kByteInNs,
          .within_device = {},
          .duplex = duplex};
}

TEST(WireNsTest, IsBytesOverBandwidthRoundedUp) {
  EXPECT_EQ(WireNs(kByteInNs, Bytes(0)), 0);
  EXPECT_EQ(WireNs(kByteInNs, Bytes(1)), 1);
  EXPECT_EQ(WireNs(kFast, Bytes(4)), 1);
  EXPECT_EQ(WireNs(kFast, Bytes(5)), 2);
  EXPECT_EQ(WireNs({.bytes_per_second = 3}, Bytes(1)), 333'333'334);
}

TEST(WireNsTest, BearsSizesWhoseProductNeedsMoreThan64Bits) {
  EXPECT_EQ(WireNs({.bytes_per_second = int64_t{1} << 34}, GiB(16 * 1024)),
            1024 * int64_t{1'000'000'000});
}

TEST(SimulatedLinksTest, TransfersTakeTheWireInTheOrderInWhichTheyBegin) {
  SimulatedLinks links(BothWays(Duplex::kFull));
  EXPECT_EQ(links.Book(CopyKind::kToDevice, 0, Bytes(100)), 110);
  // The latency passes while the wire is still taken.
  EXPECT_EQ(links.Book(CopyKind::kToDevice, 50, Bytes(100)), 210);
  EXPECT_EQ(links.Book(CopyKind::kToDevice, 60, Bytes(1)), 211);
  // A wire that is free is not held back by what was.
  EXPECT_EQ(links.Book(CopyKind::kToDevice, 1000, Bytes(1)), 1011);
}

TEST(SimulatedLinksTest, OneAfterTheOtherTakesAsManyLatencies) {
  SimulatedLinks links(BothWays(Duplex::kFull));
  int64_t now = 0;
  for (int i = 0; i < 7; ++i) {
    now = links.Book(CopyKind::kFromDevice, now, Bytes(90));
  }
  EXPECT_DOUBLE_EQ(LinkSeconds(kByteInNs, 7, Bytes(630)), now * 1e-9);
}

TEST(SimulatedLinksTest, BothDirectionsGoAtOnceOrShareTheWire) {
  for (const Duplex duplex : {Duplex::kFull, Duplex::kHalf}) {
    SimulatedLinks links(BothWays(duplex));
    EXPECT_EQ(links.Book(CopyKind::kToDevice, 0, Bytes(100)), 110);
    EXPECT_EQ(links.Book(CopyKind::kFromDevice, 0, Bytes(100)),
              duplex == Duplex::kFull ? 110 : 210);
  }
}

TEST(SimulatedLinksTest, TheDevicesMemoryIsAWireOfItsOwn) {
  SimulatedLinkModels models = BothWays(Duplex::kHalf);
  models.within_device = kFast;
  SimulatedLinks links(models);
  EXPECT_EQ(links.Book(CopyKind::kToDevice, 0, Bytes(100)), 110);
  EXPECT_EQ(links.Book(CopyKind::kWithinDevice, 0, Bytes(100)), 25);
  EXPECT_EQ(links.Book(CopyKind::kWithinDevice, 5, Bytes(100)), 50);
}

TEST(SimulatedLinksTest, ALinkWithoutAModelTakesNoTimeAndIsCountedAllTheSame) {
  SimulatedLinks links({.to_device = kByteInNs});
  EXPECT_TRUE(links.throttles(CopyKind::kToDevice));
  EXPECT_FALSE(links.throttles(CopyKind::kFromDevice));
  EXPECT_FALSE(links.throttles(CopyKind::kWithinDevice));
  EXPECT_EQ(links.Book(CopyKind::kFromDevice, 77, GiB(1)), 77);
  EXPECT_EQ(links.use(CopyKind::kFromDevice),
            (LinkUse{.transfers = 1, .bytes = GiB(1), .busy_ns = 0}));
}

TEST(SimulatedLinksTest, CountsWhatEachDirectionCarried) {
  SimulatedLinks links(BothWays(Duplex::kHalf));
  links.Book(CopyKind::kToDevice, 0, Bytes(30));
  links.Book(CopyKind::kToDevice, 0, Bytes(12));
  links.Book(CopyKind::kFromDevice, 0, Bytes(5));
  EXPECT_EQ(links.use(CopyKind::kToDevice),
            (LinkUse{.transfers = 2, .bytes = Bytes(42), .busy_ns = 42}));
  EXPECT_EQ(links.use(CopyKind::kFromDevice),
            (LinkUse{.transfers = 1, .bytes = Bytes(5), .busy_ns = 5}));
  EXPECT_EQ(links.use(CopyKind::kWithinDevice), LinkUse());
}

TEST(LinkModelsOfTest, TakesTheLinksBetweenHostAndDevice) {
  TierModel model;
  model.host_to_device = kByteInNs;
  model.nvme_read = kFast;
  const SimulatedLinkModels links = LinkModelsOf(model, Duplex::kHalf);
  EXPECT_EQ(links.to_device, kByteInNs);
  EXPECT_FALSE(links.from_device.has_value());
  EXPECT_FALSE(links.within_device.has_value());
  EXPECT_EQ(links.duplex, Duplex::kHalf);
}

TEST(SimulatedLinksDeathTest, ALinkNeedsABandwidth) {
  EXPECT_DEATH(SimulatedLinks({.to_device = LinkModel{}}), "bytes_per_second");
}

}  // namespace
}  // namespace castor
