// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_MPI_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_MPI_MPI_COMMUNICATOR_H_

// Ranks that are processes, of one machine or of many, which MPI connects.
// Nothing blocks: a thread of the communicator's own moves the data and answers
// the other ranks, also while this rank computes. Reductions exchange slices
// and add them up here, in rank order and in fp32, in segments, with the bits
// of the in-process backend; an MPI_Op would fix neither order nor precision.
// An all-gather goes from place to place.
//
// A rank that hangs is named once it has held an operation up for the timeout.
// Where a process dies, Open MPI has mpirun end all of them by SIGTERM: see
// last_words.h. What a rank that does not answer may still read of operations
// under way is left to MPI: after such an end the process should not go on.
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
  // An operation to which not all ranks have come within this time, or which
  // makes no progress for as long, ends the world, naming the ranks it waits
  // for; 0 waits for ever.
  int64_t timeout_ns = 120'000'000'000;
  // For what reductions receive: two segments for every other rank, which is
  // what buffer_bytes() says. At least 4 KiB for each are taken.
  Bytes exchange_buffer = MiB(4);
  // The largest piece of other transfers, as MPI counts in 31 bits.
  Bytes most_at_once = GiB(1);
  // Must outlive the communicator; null: the machine's clock.
  const Clock* clock = nullptr;
};

// A world of all processes. Blocks until every rank makes it: all ranks make
// the same ones in the same order, with the same sizes. InvalidArgument where
// options have no meaning. Destroying a communicator does not block: what was
// called goes on until it ends. `session` must outlive it.
Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(
    MpiSession& session, const MpiOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_MPI_MPI_COMMUNICATOR_H_
