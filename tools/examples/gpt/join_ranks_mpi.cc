// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/mpi/mpi_communicator.h"
#include "collectives/mpi/mpi_session.h"
#include "offload/lane.h"
#include "tools/examples/gpt/rank_group.h"

namespace castor::gpt {
namespace {

class MpiRankGroup final : public RankGroup {
 public:
  MpiRankGroup(std::unique_ptr<MpiSession> session,
               std::unique_ptr<Communicator> own, int64_t timeout_ns)
      : timeout_ns_(timeout_ns),
        session_(std::move(session)),
        own_(std::move(own)),
        lane_("between ranks") {}
  ~MpiRankGroup() override { Close().IgnoreError(); }

  int rank() const override { return session_->rank(); }
  int world() const override { return session_->world(); }
  int local_rank() const override { return session_->local_rank(); }
  int local_world() const override { return session_->local_world(); }

  Result<Communicator*> MakeCommunicator(Bytes buffer) override {
    CASTOR_ASSIGN_OR_RETURN(
        engine_, MakeMpiCommunicator(*session_, {.timeout_ns = timeout_ns_,
                                                 .exchange_buffer = buffer}));
    return engine_.get();
  }

  Status Exchange(const void* mine, void* all, Bytes size) override {
    own_->AllGather(lane_, mine, all, Elements(size.count()), DType::kU8,
                    {ChunkId(), -1, "trainer"});
    return lane_.status();
  }

  void Abort(const Status& reason) override {
    own_->Abort(reason);
    if (engine_ != nullptr) engine_->Abort(reason);
  }

  Status Close() override {
    // Ranks that know of a failure come soon, or not at all.
    constexpr int64_t kFailureNs = 10'000'000'000;
    const auto failed = [](const std::unique_ptr<Communicator>& one) {
      return one != nullptr && !one->Health().ok();
    };
    const int64_t wait_ns =
        failed(own_) || failed(engine_) ? kFailureNs : timeout_ns_;
    engine_ = nullptr;
    own_ = nullptr;
    return session_->Close(wait_ns);
  }

 private:
  const int64_t timeout_ns_;
  // Destroyed in reverse: communicators before the session.
  const std::unique_ptr<MpiSession> session_;
  // What the trainer says to itself is counted apart from what the engine does.
  std::unique_ptr<Communicator> own_;
  std::unique_ptr<Communicator> engine_;
  ThreadLane lane_;
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
  CASTOR_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> own,
      MakeMpiCommunicator(
          *session, {.timeout_ns = timeout_ns, .exchange_buffer = Bytes(0)}));
  return std::unique_ptr<RankGroup>(std::make_unique<MpiRankGroup>(
      std::move(session), std::move(own), timeout_ns));
}

}  // namespace castor::gpt
