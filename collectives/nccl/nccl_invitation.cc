// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/nccl_invitation.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "chunk/base/check.h"
#include "collectives/nccl/control/control_message.h"

namespace castor::internal {
namespace {

constexpr size_t kTokenDigits = 32;
constexpr size_t kMostHosts = 16;

Result<std::string> MakeToken() {
  std::array<unsigned char, kTokenDigits / 2> random{};
  if (getrandom(random.data(), random.size(), 0) !=
      static_cast<ssize_t>(random.size())) {
    return Unavailable("the system has no random numbers (getrandom)");
  }
  return fmt::format("{:02x}", fmt::join(random, ""));
}

}  // namespace

std::vector<std::byte> Pack(const Result<NcclInvitation>& invitation) {
  ControlMessage message = {.kind = ControlKind::kWelcome,
                            .status = invitation.status()};
  if (invitation.ok()) {
    message.position = invitation->address.port;
    message.text = fmt::format(
        "{}{}", invitation->token,
        fmt::join(
            std::span(invitation->address.hosts)
                .first(std::min(kMostHosts, invitation->address.hosts.size())),
            " "));
    const auto* const ids =
        reinterpret_cast<const std::byte*>(invitation->ids.data());
    message.payload.assign(ids, ids + sizeof(NcclIds));
  }
  std::vector<std::byte> bytes = Encode(message);
  CASTOR_CHECK_LE(bytes.size(), kInvitationBytes);
  bytes.resize(kInvitationBytes);
  return bytes;
}

Result<NcclInvitation> Unpack(std::span<const std::byte> bytes) {
  CASTOR_CHECK_EQ(bytes.size(), kInvitationBytes);
  const Status malformed = Malformed(
      "what came of rank 0's ids and address is not what Castor "
      "sends: do all ranks run the same build?");
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  bytes = bytes.subspan(kLengthBytes);
  if (length > bytes.size()) return malformed;
  Result<ControlMessage> message = Decode(bytes.first(length));
  if (!message.ok()) return malformed;
  if (!message->status.ok()) return message->status;
  if (message->payload.size() != sizeof(NcclIds) ||
      message->text.size() < kTokenDigits) {
    return malformed;
  }
  NcclInvitation invitation;
  std::memcpy(invitation.ids.data(), message->payload.data(), sizeof(NcclIds));
  invitation.token = message->text.substr(0, kTokenDigits);
  invitation.address.port = static_cast<uint16_t>(message->position);
  std::string_view hosts = std::string_view(message->text).substr(kTokenDigits);
  while (!hosts.empty()) {
    const size_t end = std::min(hosts.find(' '), hosts.size());
    invitation.address.hosts.emplace_back(hosts.substr(0, end));
    hosts.remove_prefix(std::min(end + 1, hosts.size()));
  }
  return invitation;
}

Result<NcclHost> NcclHost::Open(NcclCalls* nccl,
                                const std::string& control_host) {
  const char* const named = std::getenv("CASTOR_CONTROL_HOST");
  CASTOR_ASSIGN_OR_RETURN(
      ControlListener listener,
      ControlListener::Open(
          control_host.empty() && named != nullptr ? named : control_host));
  NcclInvitation invitation;
  invitation.address = listener.address();
  CASTOR_ASSIGN_OR_RETURN(invitation.token, MakeToken());
  for (NcclUniqueId& id : invitation.ids) {
    if (const int error = nccl->GetUniqueId(&id); error != kNcclSuccess) {
      return Unavailable(
          fmt::format("ncclGetUniqueId of rank 0: {}", nccl->ErrorText(error)));
    }
  }
  return NcclHost(std::move(listener), std::move(invitation));
}

}  // namespace castor::internal
