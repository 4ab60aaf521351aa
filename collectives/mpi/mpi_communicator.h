// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_MPI_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_MPI_MPI_COMMUNICATOR_H_

// Ranks that are processes, of one machine or of many, which MPI connects: a
// callback communicator (callbacks/callback_communicator.h) over MPI's
// messages. A thread of the communicator's own moves the data, one operation at
// a time, also while this rank computes; reductions have the bits of the
// in-process backend, where an MPI_Op would fix neither order nor precision.
//
// A rank that hangs is named once it has held an operation up for the timeout.
// Where a process dies, Open MPI has mpirun end all of them by SIGTERM: see
// callbacks/last_words.h. After the end of a world in which ranks do not answer
// the process should not go on (MpiSession::Close).
//
// Memory must be addressable by the host.

#include <cstdint>
#include <memory>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/mpi/mpi_session.h"

namespace castor {

struct MpiOptions {
  // An operation to which not all ranks have come within this time, or whose
  // data takes as long, ends the world, naming the ranks it waits for; 0 waits
  // for ever.
  int64_t timeout_ns = 120'000'000'000;
  // As CallbackOptions have it.
  Bytes exchange_buffer = MiB(4);
  // Must outlive the communicator; null: the machine's clock.
  const Clock* clock = nullptr;
};

// A world of all processes. Blocks until every rank makes it: all ranks make
// the same ones in the same order, with the same sizes. InvalidArgument where
// options have no meaning. Destroying a communicator blocks until all ranks
// leave, or the world ends. `session` must outlive it.
Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(
    MpiSession& session, const MpiOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_MPI_MPI_COMMUNICATOR_H_
