// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <utility>

#include "collectives/mpi/mpi_communicator.h"
#include "collectives/mpi/mpi_session.h"
#include "tools/examples/gpt/ranks/rank_group.h"

namespace castor::gpt {
namespace {

class MpiRankGroup final : public RankGroup {
 public:
  MpiRankGroup(std::unique_ptr<MpiSession> session, int64_t timeout_ns)
      : timeout_ns_(timeout_ns), session_(std::move(session)) {}
  ~MpiRankGroup() override { Close().IgnoreError(); }

  Status Join() {
    CASTOR_ASSIGN_OR_RETURN(trainer_, Make(Bytes(0)));
    return OkStatus();
  }

  int local_rank() const override { return session_->local_rank(); }
  int local_world() const override { return session_->local_world(); }
  Communicator& trainer() const override { return *trainer_; }

  Status Close() override {
    // Ranks that know of a failure come soon, or not at all.
    constexpr int64_t kFailureNs = 10'000'000'000;
    const auto failed = [](const std::unique_ptr<Communicator>& one) {
      return one != nullptr && !one->Health().ok();
    };
    const int64_t wait_ns =
        failed(trainer_) || failed(engine_) ? kFailureNs : timeout_ns_;
    engine_ = nullptr;
    trainer_ = nullptr;
    return session_->Close(wait_ns);
  }

 private:
  Result<std::unique_ptr<Communicator>> Make(Bytes buffer) override {
    return MakeMpiCommunicator(
        *session_, {.timeout_ns = timeout_ns_, .exchange_buffer = buffer});
  }

  const int64_t timeout_ns_;
  const std::unique_ptr<MpiSession> session_;
  std::unique_ptr<Communicator> trainer_;
};

}  // namespace

Result<std::unique_ptr<RankGroup>> JoinRanks(const Launch& launch,
                                             const std::vector<std::string>&,
                                             int64_t timeout_ns) {
  CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<MpiSession> session,
                          MpiSession::Start());
  if (session->rank() != launch.rank || session->world() != launch.world) {
    return Status(Unavailable(fmt::format(
        "{} says that this is rank {} of {}, and MPI that it is rank {} of {}: "
        "start the program by mpirun, or by srun --mpi=pmix where Slurm and "
        "Open MPI are built for that",
        LauncherName(launch.by), launch.rank, launch.world, session->rank(),
        session->world())));
  }
  auto group = std::make_unique<MpiRankGroup>(std::move(session), timeout_ns);
  CASTOR_RETURN_IF_ERROR(group->Join());
  return std::unique_ptr<RankGroup>(std::move(group));
}

}  // namespace castor::gpt
