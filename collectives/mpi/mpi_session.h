// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_MPI_SESSION_H_
#define CASTOR_COLLECTIVES_MPI_MPI_SESSION_H_

// MPI in this process, which is one rank of what mpirun, or srun with PMIx,
// started: begun and ended once, and the maker of communicators
// (mpi_communicator.h). Where the host program has begun MPI itself, it ends it
// itself too. Owner thread only; it outlives the communicators.

#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/base/status.h"

namespace castor {

namespace internal {
class MpiCalls;
}  // namespace internal

class MpiSession {
 public:
  // Begins MPI. Blocks until every rank does. Unavailable where MPI does not
  // let several threads call it at a time (MPI_THREAD_MULTIPLE), which the
  // communicators' threads and the host program's own calls need.
  static Result<std::unique_ptr<MpiSession>> Start();
  // As Close, without a reason to give.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  // Among the processes of this machine.
  int local_rank() const { return local_rank_; }
  int local_world() const { return local_world_; }

  // Waits until every rank has come here, and ends MPI. Aborted where ranks do
  // not come in `wait_ns` (0: for ever), or did not answer the end of a world.
  // MPI is then left as it is, and the process must end, which has mpirun end
  // the others. REQUIRES: the communicators are destroyed.
  Status Close(int64_t wait_ns = 120'000'000'000);

  // For MakeMpiCommunicator.
  Result<std::shared_ptr<internal::MpiCalls>> Connect();

 private:
  explicit MpiSession(bool began) : began_(began) {}

  const bool began_;  // and so ends it
  int rank_ = 0;
  int world_ = 1;
  int local_rank_ = 0;
  int local_world_ = 1;
  bool closed_ = false;
  std::vector<std::shared_ptr<internal::MpiCalls>> calls_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_MPI_MPI_SESSION_H_
