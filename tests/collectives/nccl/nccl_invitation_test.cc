// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/nccl_invitation.h"

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/nccl/nccl_calls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/fakes/fake_nccl.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class NcclInvitationTest : public testing::Test {
 protected:
  FakeCuda cuda_;
  FakeNccl nccl_{&cuda_};
};

TEST_F(NcclInvitationTest, TravelsAsBytesOfOneSize) {
  auto host = NcclHost::Open(&nccl_, "");
  ASSERT_THAT(host, IsOk());
  const NcclInvitation& sent = host->invitation();
  const std::vector<std::byte> bytes = Pack(sent);
  ASSERT_EQ(bytes.size(), kInvitationBytes);
  const auto got = Unpack(bytes);
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(got->token, sent.token);
  EXPECT_EQ(got->address.port, host->listener().address().port);
  EXPECT_EQ(got->address.hosts, sent.address.hosts);
  EXPECT_EQ(got->ids[0].bytes, sent.ids[0].bytes);
  EXPECT_EQ(got->ids[1].bytes, sent.ids[1].bytes);
  EXPECT_NE(got->ids[0].bytes, got->ids[1].bytes);
}

TEST_F(NcclInvitationTest, TellsWhyThereIsNone) {
  nccl_.FailCall("GetUniqueId", 2, kNcclSystemError);
  const auto host = NcclHost::Open(&nccl_, "");
  ASSERT_EQ(host.status().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(std::string(host.status().message()),
              HasSubstr("ncclGetUniqueId of rank 0"));
  const auto got = Unpack(Pack(host.status()));
  EXPECT_EQ(got.status().code(), host.status().code());
  EXPECT_EQ(got.status().message(), host.status().message());
}

TEST_F(NcclInvitationTest, WhatIsNoneIsRefused) {
  std::vector<std::byte> bytes(kInvitationBytes);
  EXPECT_EQ(Unpack(bytes).status().code(), ErrorCode::kMalformed);
  for (std::byte& byte : bytes) byte = std::byte{0xff};
  EXPECT_EQ(Unpack(bytes).status().code(), ErrorCode::kMalformed);
}

// In the program, or else in the environment.
TEST_F(NcclInvitationTest, AHostThatIsNamedGoesBeforeItsInterfaces) {
  setenv("CASTOR_CONTROL_HOST", "head.cluster", 1);
  const auto by_environment = NcclHost::Open(&nccl_, "");
  const auto by_program = NcclHost::Open(&nccl_, "10.1.2.3");
  unsetenv("CASTOR_CONTROL_HOST");
  ASSERT_THAT(by_environment, IsOk());
  ASSERT_THAT(by_program, IsOk());
  EXPECT_THAT(by_environment->invitation().address.hosts,
              ElementsAre("head.cluster"));
  EXPECT_THAT(by_program->invitation().address.hosts, ElementsAre("10.1.2.3"));
}

}  // namespace
}  // namespace castor::internal
