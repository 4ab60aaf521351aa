// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "chunk/base/json_value.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::Not;

TierModel HostLinks() {
  TierModel machine;
  machine.host_to_device = {2'000'000'000, 10'000};
  machine.device_to_host = {1'000'000'000, 0};
  return machine;
}

TEST(SearchTransferTest, CountsWhatACandidateAllocates) {
  GroupSearchResult group;
  group.dtype = DType::kBF16;
  ChunkSizeCandidate candidate;
  candidate.chunks = 5;
  candidate.allocated = Elements(1'000'000'000);
  const StepCost cost = TransferCost(HostLinks(), group, candidate, 1);
  // 2 GB twice down and once up.
  EXPECT_DOUBLE_EQ(*cost.on(StepLink::kHostToDevice), 2 + 2 * 5 * 1e-5);
  EXPECT_DOUBLE_EQ(*cost.on(StepLink::kDeviceToHost), 2);
  EXPECT_DOUBLE_EQ(*KnownSeconds(cost), 2 + 2 * 5 * 1e-5);
  group.trainable = false;
  EXPECT_DOUBLE_EQ(*TransferCost(HostLinks(), group, candidate, 1)
                        .on(StepLink::kDeviceToHost),
                   0);
}

TEST(SearchTransferTest, TellsTheSlowestOfTheKnownLinks) {
  StepCost cost;
  EXPECT_FALSE(KnownSeconds(cost).has_value());
  cost.link_seconds[1] = 2;
  cost.link_seconds[2] = 3;
  EXPECT_EQ(*KnownSeconds(cost), 3);
  const JsonValue json = TransferJson(cost);
  EXPECT_TRUE(json["host_to_device_seconds"].is_null());
  EXPECT_EQ(json["device_to_host_seconds"], 2.0);
  EXPECT_EQ(json["all_gather_seconds"], 3.0);
  EXPECT_TRUE(json["overlapped_seconds"].is_null());
  cost.link_seconds[0] = 1;
  cost.link_seconds[3] = 1;
  EXPECT_EQ(TransferJson(cost)["overlapped_seconds"], 3.0);
  EXPECT_EQ(TransferJson(cost)["serial_seconds"], 7.0);
}

TEST(SearchTransferTest, WritesTimesWithThreeDigits) {
  EXPECT_EQ(SecondsText(0), "0.00 us");
  EXPECT_EQ(SecondsText(1.234e-5), "12.3 us");
  EXPECT_EQ(SecondsText(0.1234), "123 ms");
  EXPECT_EQ(SecondsText(1.234), "1.23 s");
  EXPECT_EQ(SecondsText(1234), "1234 s");
}

TEST(SearchTransferTest, SaysWhatIsKnownOfTheMachine) {
  EXPECT_THAT(MachineText(HostLinks(), 1),
              HasSubstr("host to device 2 GB/s + 10.0 us and device to host 1 "
                        "GB/s + 0.00 us"));
  EXPECT_THAT(MachineText(HostLinks(), 1), Not(HasSubstr("unknown")));
  EXPECT_THAT(MachineText(HostLinks(), 2),
              HasSubstr("unknown and left out: all-gather and reduce-scatter"));
  EXPECT_EQ(MachineJson(HostLinks()).Dump(),
            R"({"host_to_device":{"bytes_per_second":2000000000,)"
            R"("latency_ns":10000},"device_to_host":{"bytes_per_second":)"
            R"(1000000000,"latency_ns":0}})");
}

}  // namespace
}  // namespace castor
