// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/nccl_communicator.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/units_text.h"
#include "collectives/internal/call_communicator.h"
#include "collectives/internal/collective_call.h"
#include "collectives/nccl/control_link.h"
#include "collectives/nccl/control_message.h"
#include "collectives/nccl/control_plane.h"
#include "collectives/nccl/nccl_calls.h"
#include "collectives/nccl/nccl_library.h"
#include "collectives/nccl/nccl_streams.h"
#include "collectives/nccl/nccl_world.h"
#include "offload/cuda/cuda_device.h"
#include "offload/lane.h"

namespace castor {
namespace {

using internal::CollectiveCall;
using internal::CollectiveKind;
using internal::ControlAddress;
using internal::ControlKind;
using internal::ControlLink;
using internal::ControlListener;
using internal::ControlMessage;
using internal::ControlPlane;
using internal::NcclIds;
using internal::NcclStreams;
using internal::NcclWorld;
using internal::RankBuffers;

// Half of what a message may hold.
constexpr Bytes kMostHostData(internal::kLongestMessage / 2);
constexpr size_t kTokenDigits = 32;
constexpr size_t kInvitationBytes = 4096;
constexpr size_t kMostHosts = 16;

// What rank 0 tells the others to begin with.
struct Invitation {
  NcclIds ids;
  std::string token;
  ControlAddress address;
};

// In bytes of one size: a message, or why there is none.
std::vector<std::byte> Pack(const Result<Invitation>& invitation) {
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

Result<Invitation> Unpack(std::span<const std::byte> bytes) {
  const Status malformed = Malformed(
      "what came of rank 0's ids and address is not what Castor "
      "sends: do all ranks run the same build?");
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), internal::kLengthBytes);
  bytes = bytes.subspan(internal::kLengthBytes);
  if (length > bytes.size()) return malformed;
  Result<ControlMessage> message = internal::Decode(bytes.first(length));
  if (!message.ok()) return malformed;
  if (!message->status.ok()) return message->status;
  if (message->payload.size() != sizeof(NcclIds) ||
      message->text.size() < kTokenDigits) {
    return malformed;
  }
  Invitation invitation;
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

Result<std::string> MakeToken() {
  std::array<unsigned char, kTokenDigits / 2> random{};
  if (getrandom(random.data(), random.size(), 0) !=
      static_cast<ssize_t>(random.size())) {
    return Unavailable("the system has no random numbers (getrandom)");
  }
  return fmt::format("{:02x}", fmt::join(random, ""));
}

Result<Invitation> Invite(const NcclOptions& options,
                          const Result<ControlListener>& listener) {
  if (!listener.ok()) return listener.status();
  Invitation invitation;
  invitation.address = listener->address();
  CASTOR_ASSIGN_OR_RETURN(invitation.token, MakeToken());
  for (NcclUniqueId& id : invitation.ids) {
    if (const int error = options.nccl->GetUniqueId(&id);
        error != kNcclSuccess) {
      return Unavailable(fmt::format("ncclGetUniqueId of rank 0: {}",
                                     options.nccl->ErrorText(error)));
    }
  }
  return invitation;
}

// What all ranks must have alike.
std::string FactsOf(const NcclOptions& options) {
  const std::string sums =
      options.reduce == NcclOptions::Reduce::kExact
          ? fmt::format("exact reductions in {}",
                        FormatBytes(options.exchange_bytes))
          : "native reductions";
  return fmt::format("a world of {}, {}, NCCL {}", options.world, sums,
                     NcclVersionText(options.nccl->version()));
}

struct Joined {
  NcclIds ids;
  std::vector<ControlLink> links;
};

// Finds the other ranks.
Result<Joined> Join(const NcclOptions& options) {
  const SteadyClock clock;
  constexpr int64_t kForEver = int64_t{1} << 62;
  const int64_t deadline_ns = options.start_timeout_ns > 0
                                  ? clock.NowNs() + options.start_timeout_ns
                                  : kForEver;
  const std::string facts = FactsOf(options);
  Joined joined;
  if (options.rank == 0) {
    Result<ControlListener> listener =
        ControlListener::Open(options.control_host);
    const Result<Invitation> invitation = Invite(options, listener);
    std::vector<std::byte> bytes = Pack(invitation);
    CASTOR_RETURN_IF_ERROR(options.exchange->Broadcast(0, bytes));
    CASTOR_RETURN_IF_ERROR(invitation.status());
    joined.ids = invitation->ids;
    CASTOR_ASSIGN_OR_RETURN(
        joined.links, listener->AcceptRanks(options.world, invitation->token,
                                            facts, deadline_ns));
    return joined;
  }
  std::vector<std::byte> bytes(kInvitationBytes);
  CASTOR_RETURN_IF_ERROR(options.exchange->Broadcast(options.rank, bytes));
  CASTOR_ASSIGN_OR_RETURN(const Invitation invitation, Unpack(bytes));
  joined.ids = invitation.ids;
  CASTOR_ASSIGN_OR_RETURN(
      ControlLink link,
      ConnectToRankZero(invitation.address, options.rank, invitation.token,
                        facts, deadline_ns));
  joined.links.push_back(std::move(link));
  return joined;
}

class NcclCommunicator final : public internal::CallCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclWorld> world, const NcclOptions& options,
                   Bytes buffers)
      : world_(std::move(world)),
        rank_(options.rank),
        size_(options.world),
        exact_(options.reduce == NcclOptions::Reduce::kExact),
        buffer_bytes_(buffers) {}
  ~NcclCommunicator() override { world_->Stop(next_position_); }

  int rank() const override { return rank_; }
  int world() const override { return size_; }

  void Abort(Status reason) override { world_->End(std::move(reason)); }
  Status Health() const override { return world_->ended(); }
  bool needs_host_addressable_memory() const override { return false; }
  Status CheckReduces(const RankScope& scope) const override {
    if (exact_ || scope.plain(size_)) return OkStatus();
    return InvalidArgument(fmt::format(
        "NCCL's own sums (native) know one group of all {} ranks, and shard "
        "groups of {} are asked for: take exact reductions, or leave shard "
        "groups away",
        size_, scope.group));
  }
  void RegisterMemory(void* data, Bytes size) override {
    world_->Register(data, size);
  }
  void UnregisterMemory(void* data) override { world_->Unregister(data); }
  Bytes buffer_bytes() const override { return buffer_bytes_; }
  CommunicatorStats stats() const override { return world_->stats(); }

 private:
  void Queue(Lane& lane, const CollectiveCall& call,
             const RankBuffers& buffers) override {
    if (call.kind == CollectiveKind::kAllReduce ||
        call.kind == CollectiveKind::kBroadcast) {
      CASTOR_CHECK_LE(BytesOf(Elements(call.count), call.dtype), kMostHostData);
    }
    auto operation = std::make_shared<NcclWorld::Operation>();
    operation->position = next_position_++;
    operation->work.call = call;
    operation->work.buffers = buffers;
    world_->Add(operation);
    lane.Record().OnDone([world = world_, operation](const Status& status) {
      world->Arrive(operation, status);
    });
    lane.Wait(operation->done.event());
  }

  const std::shared_ptr<NcclWorld> world_;
  const int rank_;
  const int size_;
  const bool exact_;  // sums in rank order
  const Bytes buffer_bytes_;
  int64_t next_position_ = 0;  // of this rank's next call
};

}  // namespace

Result<std::unique_ptr<Communicator>> MakeNcclCommunicator(
    const NcclOptions& options) {
  CASTOR_CHECK(options.device != nullptr && options.nccl != nullptr &&
               options.exchange != nullptr);
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return InvalidArgument(fmt::format("there is no rank {} in a world of {}",
                                       options.rank, options.world));
  }
  constexpr int64_t kLeastPerRank = 512;
  if (options.reduce == NcclOptions::Reduce::kExact && options.world > 1 &&
      options.exchange_bytes.count() < kLeastPerRank * options.world) {
    return InvalidArgument(fmt::format(
        "{} are too little for {} ranks to exchange what they add: give {} at "
        "least, or have NCCL add (native)",
        FormatBytes(options.exchange_bytes), options.world,
        FormatBytes(Bytes(kLeastPerRank * options.world))));
  }
  CASTOR_ASSIGN_OR_RETURN(Joined joined, Join(options));
  internal::NcclWorldOptions world = {
      .rank = options.rank,
      .world = options.world,
      .timeouts = {.operation_ns = options.timeout_ns,
                   .start_ns = options.start_timeout_ns},
      .ids = joined.ids,
      // A device that refuses refuses the calls that follow, too.
      .on_thread =
          [device = options.device] { device->MakeCurrent().IgnoreError(); },
      .refused = OkStatus()};
  Result<std::unique_ptr<NcclStreams>> streams =
      NcclStreams::Make({.device = options.device,
                         .nccl = options.nccl,
                         .rank = options.rank,
                         .world = options.world,
                         .exact = options.reduce == NcclOptions::Reduce::kExact,
                         .exchange_bytes = options.exchange_bytes});
  Bytes buffers;
  std::unique_ptr<NcclStreams> made;
  if (streams.ok()) {
    made = *std::move(streams);
    buffers = made->buffer_bytes();
  } else {
    world.refused = streams.status();
  }
  ControlPlane plane(options.rank, options.world, std::move(joined.links),
                     world.timeouts);
  CASTOR_ASSIGN_OR_RETURN(
      std::shared_ptr<NcclWorld> started,
      NcclWorld::Make(std::move(world), std::move(plane), std::move(made)));
  CASTOR_RETURN_IF_ERROR(started->Start());
  return std::unique_ptr<Communicator>(
      std::make_unique<NcclCommunicator>(std::move(started), options, buffers));
}

}  // namespace castor
