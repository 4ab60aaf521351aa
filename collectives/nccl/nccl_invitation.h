// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_NCCL_INVITATION_H_
#define CASTOR_COLLECTIVES_NCCL_NCCL_INVITATION_H_

// What rank 0 tells the others to begin with: NCCL's ids, where it listens for
// them, and the word by which it knows them. It travels as bytes of one size,
// by an IdExchange or by whatever the program has. Values; the host is
// thread-compatible.

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/nccl/control/control_link.h"
#include "collectives/nccl/nccl_calls.h"
#include "collectives/nccl/nccl_streams.h"

namespace castor::internal {

inline constexpr size_t kInvitationBytes = 4096;

struct NcclInvitation {
  NcclIds ids;
  std::string token;
  ControlAddress address;
};

// kInvitationBytes: the invitation, or why there is none.
std::vector<std::byte> Pack(const Result<NcclInvitation>& invitation);
// Malformed where `bytes` are no invitation; why there is none.
// REQUIRES: kInvitationBytes of them.
Result<NcclInvitation> Unpack(std::span<const std::byte> bytes);

// Rank 0's: listens for the others as long as it lives. For one world.
class NcclHost {
 public:
  // `control_host`: as NcclOptions. Unavailable, with the reason.
  static Result<NcclHost> Open(NcclCalls* nccl,
                               const std::string& control_host);

  const NcclInvitation& invitation() const { return invitation_; }
  ControlListener& listener() { return listener_; }

 private:
  NcclHost(ControlListener listener, NcclInvitation invitation)
      : listener_(std::move(listener)), invitation_(std::move(invitation)) {}

  ControlListener listener_;
  NcclInvitation invitation_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_NCCL_NCCL_INVITATION_H_
