// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_LAUNCH_H_
#define CASTOR_COLLECTIVES_WORLD_LAUNCH_H_

// Which rank of how many this process is, from what started it: mpirun of Open
// MPI, torchrun, srun of Slurm, or who says so outright. Pure functions of an
// environment that is given, thread-safe.
//
// | by       | rank, ranks, rank on the machine; where they may meet       |
// |----------|-------------------------------------------------------------|
// | Open MPI | OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK                    |
// | torchrun | RANK, WORLD_SIZE, LOCAL_RANK; MASTER_ADDR, MASTER_PORT      |
// | Slurm    | SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID;          |
// |          | SLURM_STEP_NODELIST, SLURM_JOB_ID, SLURM_STEP_ID            |
//
// Slurm's are looked at where the others are absent: mpirun and torchrun inside
// an allocation hand on those of the step that they were started in. Without
// SLURM_STEP_NUM_TASKS the process is no task of srun's.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

enum class Launcher : uint8_t {
  kNone,      // one process by itself
  kExplicit,  // who asked said so
  kOpenMpi,
  kTorchrun,
  kSlurm,
};

// "Open MPI", "torchrun", "Slurm", ...
std::string_view LauncherName(Launcher launcher);

struct Launch {
  Launcher by = Launcher::kNone;
  int rank = 0;
  int world = 1;
  // Among the processes of the machine; the rank where nothing is said of it.
  int local_rank = 0;
  // Where torchrun's own store is.
  std::string master_address;
  int master_port = 0;
  // Where rank 0 may listen for the others: the port after torchrun's, or the
  // first host of Slurm's step and a port made of the step's number. Empty
  // where nothing tells.
  std::string meeting_host;
  int meeting_port = 0;
};

// What somebody says beside the environment, as flags do.
struct LaunchRequest {
  std::optional<int> rank = {};
  std::optional<int> world = {};
  std::optional<int> local_rank = {};
};

// The value of a variable, null where there is none, as std::getenv.
using EnvironmentReader = std::function<const char*(const char* name)>;

// InvalidArgument, with what to change, where values are no numbers, only half
// of what is needed is there, a rank is not below the number of ranks, or two
// say different things.
Result<Launch> FindLaunch(const EnvironmentReader& environment,
                          const LaunchRequest& request);

// Of the device budget of a rank that is a process, what it exchanges gradients
// in to add them in rank order: a 32nd, at most 4 MiB, rounded so that a
// communicator of MPI or NCCL takes just that; a budget of 0 is no limit. 0
// bytes where there is one rank.
Bytes ExchangeBufferFor(Bytes device_budget, int world);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_WORLD_LAUNCH_H_
