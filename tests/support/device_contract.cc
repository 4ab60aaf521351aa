// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Memory and copies. device_contract_lanes.cc has the order of operations,
// device_contract_kernels.cc their arithmetic, device_contract_failures.cc how
// they fail.

#include "tests/support/device_contract.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units_text.h"
#include "gmock/gmock.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

bool IsZero(std::span<const std::byte> bytes) {
  return OnlyBytes(bytes, std::byte{0});
}

}  // namespace

void DeviceContract::SetUp() {
  std::string reason;
  under_test_ = GetParam().make(&reason);
  if (under_test_ == nullptr) GTEST_SKIP() << reason;
}

Slab DeviceContract::OnDevice(Bytes size) {
  Result<Slab> slab = device().MakeSlab(size);
  EXPECT_THAT(slab, IsOk());
  return std::move(slab).value();
}

Slab DeviceContract::OnHost(Bytes size) {
  Result<Slab> slab = device().MakeHostSlab(size, {});
  EXPECT_THAT(slab, IsOk());
  return std::move(slab).value();
}

Slab DeviceContract::OnHost(std::span<const std::byte> bytes) {
  Slab slab = OnHost(Bytes(static_cast<int64_t>(bytes.size())));
  std::ranges::copy(bytes, slab.data());
  return slab;
}

std::vector<std::byte> DeviceContract::Read(const std::byte* from, Bytes size) {
  const Slab host = OnHost(size);
  const auto lane = device().MakeLane("read");
  device().Copy(*lane, host.data(), from, size, CopyKind::kFromDevice);
  EXPECT_THAT(lane->Drain(), IsOk());
  return {Contents(host).begin(), Contents(host).end()};
}

void DeviceContract::Write(std::byte* to, std::span<const std::byte> bytes) {
  const Slab host = OnHost(bytes);
  const auto lane = device().MakeLane("write");
  device().Copy(*lane, to, host.data(), host.size(), CopyKind::kToDevice);
  EXPECT_THAT(lane->Drain(), IsOk());
}

TEST_P(DeviceContract, SaysWhatItIs) {
  const DeviceFacts facts = device().facts();
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.total, MiB(16));
  EXPECT_GE(facts.free, MiB(16));
  EXPECT_LE(facts.free, facts.total);
  EXPECT_GE(facts.numa_node, -1);
  EXPECT_THAT(device().status(), IsOk());
}

TEST_P(DeviceContract, SlabsAreZeroedAlsoWhereAnotherWas) {
  for (int round = 0; round < 3; ++round) {
    const Slab slab = OnDevice(MiB(1) + Bytes(5));
    EXPECT_EQ(slab.tier(), Tier::kDevice);
    EXPECT_EQ(slab.size(), MiB(1) + Bytes(5));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slab.data()) % 256, 0u);
    ASSERT_TRUE(IsZero(Read(slab.data(), slab.size())));
    Write(slab.data(), std::vector(1 << 20, std::byte{0xA5}));
  }
}

TEST_P(DeviceContract, HostSlabsAreZeroedHostMemory) {
  HostSlabFacts facts;
  Result<Slab> made = device().MakeHostSlab(KiB(300) + Bytes(1), {}, &facts);
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made->tier(), Tier::kHost);
  EXPECT_EQ(made->size(), KiB(300) + Bytes(1));
  EXPECT_TRUE(IsZero(Contents(*made)));
}

TEST_P(DeviceContract, SlabsMayBeEmpty) {
  EXPECT_EQ(OnDevice(Bytes(0)).size(), Bytes(0));
  EXPECT_EQ(OnHost(Bytes(0)).size(), Bytes(0));
}

TEST_P(DeviceContract, RefusesMoreMemoryThanItHasAndGoesOn) {
  const Bytes asked = device().facts().total + MiB(64);
  EXPECT_THAT(device().MakeSlab(asked),
              StatusIs(ErrorCode::kUnavailable, Says(FormatBytes(asked))));
  EXPECT_THAT(device().status(), IsOk());
  const Slab slab = OnDevice(KiB(64));
  EXPECT_TRUE(IsZero(Read(slab.data(), slab.size())));
}

// Each size from and to addresses of every kind, through the device and within
// it; what lies around the target stays.
TEST_P(DeviceContract, CopiesAnySizeFromAndToAnyAddress) {
  int combination = 0;
  constexpr std::byte kAround{0x77};
  const Bytes room = KiB(160);
  const Slab host = OnHost(room);
  const Slab back = OnHost(room);
  const Slab first = OnDevice(room);
  const Slab second = OnDevice(room);
  const auto lane = device().MakeLane("copies");
  FillRandom(Contents(host), 3);
  for (const int64_t size :
       {0, 1, 2, 3, 7, 16, 63, 255, 4096, 4099, 131'072, 131'071, 100'001}) {
    for (const int64_t offset : {0, 1, 3, 8, 17, 256, 4095}) {
      if (combination++ % TestStride() != 0) continue;
      const int64_t other = (offset * 5 + 2) % 4096;
      FillBytes(Contents(back), kAround);
      device().Copy(*lane, second.data(), back.data(), room,
                    CopyKind::kToDevice);
      device().Copy(*lane, first.data() + offset, host.data() + other,
                    Bytes(size), CopyKind::kToDevice);
      device().Copy(*lane, second.data() + other, first.data() + offset,
                    Bytes(size), CopyKind::kWithinDevice);
      device().Copy(*lane, back.data(), second.data(), room,
                    CopyKind::kFromDevice);
      ASSERT_THAT(lane->Drain(), IsOk());
      const auto got = Contents(back);
      const auto whole = static_cast<size_t>(size);
      const auto at = static_cast<size_t>(other);
      ASSERT_TRUE(
          SameBytes(got.subspan(at, whole), Contents(host).subspan(at, whole)))
          << size << " B at " << offset << " and " << other;
      EXPECT_TRUE(OnlyBytes(got.first(at), kAround));
      EXPECT_TRUE(OnlyBytes(got.subspan(at + whole), kAround));
      // From an odd address of the device to an odd one of the host.
      FillBytes(Contents(back), kAround);
      device().Copy(*lane, back.data() + offset, second.data() + other,
                    Bytes(size), CopyKind::kFromDevice);
      ASSERT_THAT(lane->Drain(), IsOk());
      ASSERT_TRUE(SameBytes(got.subspan(static_cast<size_t>(offset), whole),
                            Contents(host).subspan(at, whole)));
    }
  }
}

TEST_P(DeviceContract, CopiesHostMemoryThatIsNotItsOwn) {
  std::vector<std::byte> plain(100'003);
  FillRandom(plain, 4);
  std::vector<std::byte> back(plain.size());
  const Bytes size(static_cast<int64_t>(plain.size()));
  const Slab slab = OnDevice(size);
  const auto lane = device().MakeLane("plain");
  device().Copy(*lane, slab.data(), plain.data(), size, CopyKind::kToDevice);
  device().Copy(*lane, back.data(), slab.data(), size, CopyKind::kFromDevice);
  ASSERT_THAT(lane->Drain(), IsOk());
  EXPECT_TRUE(SameBytes(plain, back));
}

TEST_P(DeviceContract, ZeroesAnySizeAtAnyAddress) {
  const Slab slab = OnDevice(KiB(64));
  std::vector<std::byte> expected(64 << 10);
  FillRandom(expected, 5);
  Write(slab.data(), expected);
  const auto lane = device().MakeLane("zero");
  int64_t at = 1;
  for (const int64_t size : {0, 1, 3, 8, 31, 4096, 10'001}) {
    device().Zero(*lane, slab.data() + at, Bytes(size));
    std::fill_n(expected.begin() + at, size, std::byte{0});
    at += size + 13;
  }
  ASSERT_THAT(lane->Drain(), IsOk());
  EXPECT_TRUE(SameBytes(Read(slab.data(), slab.size()), expected));
}

}  // namespace castor
