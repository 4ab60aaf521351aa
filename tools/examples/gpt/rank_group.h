// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RANK_GROUP_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RANK_GROUP_H_

// The ranks of a run that are processes, as one of them sees them. All ranks
// make the same calls in the same order. Owner thread only; Abort may come from
// any thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/launch.h"
#include "offload/device.h"

namespace castor::gpt {

class RankGroup {
 public:
  virtual ~RankGroup() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Among the processes of this machine.
  virtual int local_rank() const = 0;
  virtual int local_world() const = 0;
  // What this rank computes next to; null: host memory. It lives until Close.
  virtual Device* device() { return nullptr; }

  // A world for an engine, whose communicator may take `buffer` for itself. It
  // lives until Close. Blocks until every rank has called it.
  virtual Result<Communicator*> MakeCommunicator(Bytes buffer) = 0;

  // all[r * size ...] = the `size` bytes that rank r brings. Blocks until every
  // rank has come; fails on all where one aborts.
  virtual Status Exchange(const void* mine, void* all, Bytes size) = 0;

  // The others' pending and later calls fail with `reason`, and those of the
  // engine's communicator.
  virtual void Abort(const Status& reason) = 0;

  // Waits for the others, as long as there is hope. Nothing else may be called
  // after it.
  virtual Status Close() = 0;
};

// How a process that was started as one of several meets the others. There are
// two of it, and a program links one: join_ranks_mpi.cc meets them by MPI;
// join_ranks_exec.cc, for a program that is to be built and started without
// MPI, becomes the program of the same name and "_mpi" beside it.
// `args`: the program's, without its name. `timeout_ns`: how long a rank may
// hold the others up. Unavailable where there is no way to them.
Result<std::unique_ptr<RankGroup>> JoinRanks(
    const Launch& launch, const std::vector<std::string>& args,
    int64_t timeout_ns);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RANK_GROUP_H_
