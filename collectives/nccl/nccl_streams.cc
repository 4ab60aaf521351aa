// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// NCCL's communicators from their start to their end.

#include "collectives/nccl/nccl_streams.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"

namespace castor::internal {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"gather", "reduce"};
constexpr std::chrono::milliseconds kLook(1);

}  // namespace

Result<std::unique_ptr<NcclStreams>> NcclStreams::Make(
    const NcclStreamsOptions& options) {
  std::unique_ptr<NcclStreams> streams(new NcclStreams(options));
  for (const Which which : {kGather, kReduce}) {
    std::unique_ptr<Lane>& lane = streams->lanes_[which];
    lane = options.device->MakeLane(
        fmt::format("rank {} NCCL {}", options.rank, kNames[which]));
    CASTOR_RETURN_IF_ERROR(lane->status());
  }
  if (options.exact && options.world > 1) {
    CASTOR_ASSIGN_OR_RETURN(streams->exchange_,
                            options.device->MakeSlab(options.exchange_bytes));
  }
  return streams;
}

NcclStreams::NcclStreams(const NcclStreamsOptions& options)
    : options_(options) {}

NcclStreams::~NcclStreams() {
  for (const NcclComm comm : comms_) CASTOR_CHECK(comm == nullptr);
}

Status NcclStreams::Describe(Which which, std::string_view call, int result) {
  NcclCalls& nccl = *options_.nccl;
  std::string more;
  if (comms_[which] != nullptr) more = nccl.LastError(comms_[which]);
  const bool shares_gpu = more.find("Duplicate GPU") != std::string::npos;
  return Aborted(fmt::format(
      "rank {}: {} on the {} communicator: {}{}{}. {}", options_.rank, call,
      kNames[which], nccl.ErrorText(result), more.empty() ? "" : ": ", more,
      shares_gpu ? "NCCL takes two ranks of one host on one GPU for a mistake: "
                   "give each rank a GPU, or, to share one on purpose, each "
                   "process an NCCL_HOSTID of its own"
                 : "NCCL_DEBUG=WARN has NCCL say more"));
}

Result<bool> NcclStreams::Settled(Which which, std::string_view call) {
  int state = kNcclSuccess;
  const int result = options_.nccl->CommGetAsyncError(comms_[which], &state);
  if (result != kNcclSuccess) {
    return Describe(which, "ncclCommGetAsyncError", result);
  }
  if (state == kNcclInProgress) return false;
  if (state != kNcclSuccess) return Describe(which, call, state);
  return true;
}

Result<bool> NcclStreams::Start(const NcclIds& ids) {
  for (;;) {
    if (begun_ > 0) {
      const auto which = static_cast<Which>(begun_ - 1);
      CASTOR_ASSIGN_OR_RETURN(const bool settled,
                              Settled(which, "ncclCommInitRankConfig"));
      if (!settled) return false;
      if (begun_ == 2) return true;
    }
    const auto which = static_cast<Which>(begun_++);
    const int result = options_.nccl->CommInitRank(
        &comms_[which], options_.world, ids[which], options_.rank);
    if (result != kNcclSuccess && result != kNcclInProgress) {
      return Describe(which, "ncclCommInitRankConfig", result);
    }
  }
}

Status NcclStreams::AsyncError() {
  for (const Which which : {kGather, kReduce}) {
    if (comms_[which] == nullptr) continue;
    CASTOR_RETURN_IF_ERROR(Settled(which, "work on the device").status());
  }
  return OkStatus();
}

void NcclStreams::Register(void* data, Bytes size) {
  NcclCalls& nccl = *options_.nccl;
  if (!nccl.can_register() || comms_[kGather] == nullptr) return;
  Registration made = {.data = data, .handles = {}};
  for (const Which which : {kGather, kReduce}) {
    if (nccl.CommRegister(comms_[which], data, size.count(),
                          &made.handles[which]) != kNcclSuccess) {
      made.handles[which] = nullptr;
    }
  }
  registrations_.push_back(made);
}

void NcclStreams::Unregister(void* data) {
  for (const Registration& each : registrations_) {
    if (each.data != data) continue;
    for (const Which which : {kGather, kReduce}) {
      if (each.handles[which] == nullptr || comms_[which] == nullptr) continue;
      // The memory goes in any case, and NCCL is told at the latest when its
      // communicator goes.
      options_.nccl->CommDeregister(comms_[which], each.handles[which]);
    }
  }
  std::erase_if(registrations_,
                [data](const Registration& each) { return each.data == data; });
}

void NcclStreams::Abort() {
  for (NcclComm& comm : comms_) {
    if (comm != nullptr) options_.nccl->CommAbort(comm);
    comm = nullptr;
  }
  registrations_.clear();
}

void NcclStreams::Finish(int64_t deadline_ns) {
  const SteadyClock clock;
  while (!registrations_.empty()) Unregister(registrations_.front().data);
  for (const Which which : {kGather, kReduce}) {
    NcclComm& comm = comms_[which];
    if (comm == nullptr) continue;
    int state = options_.nccl->CommFinalize(comm);
    while (state == kNcclInProgress && clock.NowNs() < deadline_ns) {
      std::this_thread::sleep_for(kLook);
      if (options_.nccl->CommGetAsyncError(comm, &state) != kNcclSuccess) break;
    }
    if (state == kNcclSuccess) {
      options_.nccl->CommDestroy(comm);
    } else {
      options_.nccl->CommAbort(comm);
    }
    comm = nullptr;
  }
}

}  // namespace castor::internal
