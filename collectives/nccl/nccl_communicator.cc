// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/text/units_text.h"
#include "collectives/nccl/control/control_link.h"
#include "collectives/nccl/control/control_message.h"
#include "collectives/nccl/control/control_plane.h"
#include "collectives/nccl/nccl_calls.h"
#include "collectives/nccl/nccl_invitation.h"
#include "collectives/nccl/nccl_library.h"
#include "collectives/nccl/nccl_streams.h"
#include "collectives/nccl/nccl_world.h"
#include "collectives/world/call_communicator.h"
#include "collectives/world/collective_call.h"
#include "offload/cuda/cuda_device.h"
#include "offload/lane.h"

namespace castor {
namespace {

using internal::CollectiveCall;
using internal::CollectiveKind;
using internal::ControlLink;
using internal::ControlPlane;
using internal::NcclHost;
using internal::NcclIds;
using internal::NcclInvitation;
using internal::NcclStreams;
using internal::NcclWorld;
using internal::RankBuffers;

// Half of what a message may hold.
constexpr Bytes kMostHostData(internal::kLongestMessage / 2);

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

// Asks the program every tenth of a second, however often it is asked itself;
// where the program says so once, that stays.
std::function<bool()> Patiently(std::function<bool()> give_up) {
  constexpr int64_t kAskEveryNs = 100'000'000;
  if (!give_up) return nullptr;
  return [give_up = std::move(give_up), asked_ns = SteadyClock().NowNs(),
          given_up = false]() mutable {
    const int64_t now_ns = SteadyClock().NowNs();
    if (given_up || now_ns - asked_ns < kAskEveryNs) return given_up;
    asked_ns = now_ns;
    given_up = give_up();
    return given_up;
  };
}

// Finds the other ranks.
Result<Joined> Join(const NcclOptions& options,
                    const std::function<bool()>& give_up) {
  const SteadyClock clock;
  constexpr int64_t kForEver = int64_t{1} << 62;
  const int64_t deadline_ns = options.start_timeout_ns > 0
                                  ? clock.NowNs() + options.start_timeout_ns
                                  : kForEver;
  const std::string facts = FactsOf(options);
  Joined joined;
  if (options.rank == 0) {
    std::optional<NcclHost> own;
    NcclHost* host = options.host;
    if (host == nullptr) {
      Result<NcclHost> opened =
          NcclHost::Open(options.nccl, options.control_host);
      std::vector<std::byte> bytes =
          Pack(opened.ok() ? Result<NcclInvitation>(opened->invitation())
                           : opened.status());
      CASTOR_RETURN_IF_ERROR(options.exchange->Broadcast(0, bytes));
      CASTOR_RETURN_IF_ERROR(opened.status());
      host = &own.emplace(*std::move(opened));
    }
    joined.ids = host->invitation().ids;
    CASTOR_ASSIGN_OR_RETURN(
        joined.links,
        host->listener().AcceptRanks(options.world, host->invitation().token,
                                     facts, deadline_ns, give_up));
    return joined;
  }
  std::vector<std::byte> bytes(internal::kInvitationBytes);
  CASTOR_RETURN_IF_ERROR(options.exchange->Broadcast(options.rank, bytes));
  CASTOR_ASSIGN_OR_RETURN(const NcclInvitation invitation,
                          internal::Unpack(bytes));
  joined.ids = invitation.ids;
  CASTOR_ASSIGN_OR_RETURN(
      ControlLink link,
      ConnectToRankZero(invitation.address, options.rank, invitation.token,
                        facts, deadline_ns, give_up));
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
               (options.exchange != nullptr || options.host != nullptr));
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
  const std::function<bool()> give_up = Patiently(options.give_up);
  CASTOR_ASSIGN_OR_RETURN(Joined joined, Join(options, give_up));
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
  CASTOR_RETURN_IF_ERROR(started->Start(give_up));
  return std::unique_ptr<Communicator>(
      std::make_unique<NcclCommunicator>(std::move(started), options, buffers));
}

}  // namespace castor
