// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/ranks/nccl_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/nccl/id_exchange.h"
#include "collectives/nccl/tcp_id_exchange.h"
#include "offload/cuda/cuda_device.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"

namespace castor::gpt {
namespace {

class NcclRankGroup final : public RankGroup {
 public:
  NcclRankGroup(const NcclRanksOptions& options, const NcclMachine& machine,
                std::unique_ptr<RankGroup> beside)
      : options_(options), machine_(machine), beside_(std::move(beside)) {}
  ~NcclRankGroup() override { Close().IgnoreError(); }

  Status Join() {
    CASTOR_ASSIGN_OR_RETURN(exchange_, MakeExchange());
    // Each may have been given a device that it alone sees.
    int devices = 0;
    const bool one =
        machine_.cuda->GetDeviceCount(&devices) == kCudaOk && devices == 1;
    CASTOR_ASSIGN_OR_RETURN(
        device_,
        CudaDevice::Open(machine_.cuda,
                         {.ordinal = one ? 0 : options_.launch.local_rank,
                          .executor = &pool_}));
    if (beside_ != nullptr) {
      local_world_ = beside_->local_world();
      return OkStatus();
    }
    constexpr Bytes kLeastBuffer = Bytes(512);
    CASTOR_ASSIGN_OR_RETURN(
        trainer_, Make(kLeastBuffer * int64_t{options_.launch.world}));
    return CountLocalRanks();
  }

  int local_rank() const override { return options_.launch.local_rank; }
  int local_world() const override { return local_world_; }
  Device* device() override { return device_.get(); }
  Communicator& trainer() const override {
    return beside_ == nullptr ? *trainer_ : beside_->trainer();
  }

  // A communicator goes best when all have come to its end.
  Status Close() override {
    Status closed;
    for (std::unique_ptr<Communicator>* each : {&engine_, &trainer_}) {
      if (*each == nullptr) continue;
      ThreadLane last("end");
      (*each)->Barrier(last, {ChunkId(), -1, "end"});
      if (closed.ok()) closed = last.status();
      each->reset();
    }
    device_ = nullptr;
    if (beside_ == nullptr) return closed;
    const Status beside = std::exchange(beside_, nullptr)->Close();
    return closed.ok() ? beside : closed;
  }

 private:
  Result<std::unique_ptr<IdExchange>> MakeExchange() {
    const Launch& launch = options_.launch;
    if (!options_.id_file.empty()) {
      return std::unique_ptr<IdExchange>(std::make_unique<FileIdExchange>(
          options_.id_file, options_.timeout_ns));
    }
    if (beside_ != nullptr || launch.world == 1) {
      return std::unique_ptr<IdExchange>(std::make_unique<FunctionIdExchange>(
          [this](int, std::span<std::byte> data) { return TellBeside(data); }));
    }
    if (!launch.meeting_host.empty()) {
      return std::unique_ptr<IdExchange>(std::make_unique<TcpIdExchange>(
          TcpIdExchangeOptions{.host = launch.meeting_host,
                               .port = launch.meeting_port,
                               .world = launch.world,
                               .run = fmt::format("{} {}", launch.meeting_host,
                                                  launch.meeting_port),
                               .timeout_ns = options_.timeout_ns}));
    }
    return Status(InvalidArgument(fmt::format(
        "{} started {} ranks and does not say where they meet: give --id-file "
        "a name that is this run's own, in a folder that all of them see, or "
        "set MASTER_ADDR and MASTER_PORT",
        LauncherName(launch.by), launch.world)));
  }

  // What rank 0 brings, by what connects the processes already.
  Status TellBeside(std::span<std::byte> data) {
    if (beside_ == nullptr) return OkStatus();
    std::vector<std::byte> all(data.size() *
                               static_cast<size_t>(options_.launch.world));
    CASTOR_RETURN_IF_ERROR(ExchangeBytes(beside_->trainer(), data.data(),
                                         all.data(), Bytes(std::ssize(data))));
    std::copy_n(all.begin(), data.size(), data.begin());
    return OkStatus();
  }

  Result<std::unique_ptr<Communicator>> Make(Bytes buffer) override {
    NcclOptions nccl;
    nccl.rank = options_.launch.rank;
    nccl.world = options_.launch.world;
    nccl.device = device_.get();
    nccl.nccl = machine_.nccl;
    nccl.exchange = exchange_.get();
    nccl.reduce = options_.reduce;
    nccl.exchange_bytes = buffer;
    nccl.timeout_ns = options_.timeout_ns;
    return MakeNcclCommunicator(nccl);
  }

  // By the hosts' names.
  Status CountLocalRanks() {
    using Name = std::array<char, 64>;
    Name mine{};
    gethostname(mine.data(), mine.size() - 1);
    CASTOR_ASSIGN_OR_RETURN(const std::vector<Name> all,
                            Exchange(*trainer_, mine));
    local_world_ = static_cast<int>(std::ranges::count(all, mine));
    return OkStatus();
  }

  const NcclRanksOptions options_;
  const NcclMachine machine_;
  ThreadPool pool_{2};  // host work of the device's lanes
  int local_world_ = 1;
  // Destroyed in reverse: communicators before the device and MPI.
  std::unique_ptr<RankGroup> beside_;
  std::unique_ptr<IdExchange> exchange_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Communicator> trainer_;  // null where `beside_` is not
};

}  // namespace

Result<std::unique_ptr<RankGroup>> JoinNcclRanks(
    const NcclRanksOptions& options, const NcclMachine& machine,
    std::unique_ptr<RankGroup> beside) {
  auto group =
      std::make_unique<NcclRankGroup>(options, machine, std::move(beside));
  CASTOR_RETURN_IF_ERROR(group->Join());
  return std::unique_ptr<RankGroup>(std::move(group));
}

}  // namespace castor::gpt
