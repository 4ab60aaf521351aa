// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RANKS_NCCL_RANKS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RANKS_NCCL_RANKS_H_

// Ranks that are GPUs, a process each, over NCCL. They find each other by what
// the launcher tells (MPI, where that connects the processes already; a host
// and a port of torchrun's or Slurm's environment) or by a shared file.

#include <cstdint>
#include <memory>
#include <string>

#include "chunk/base/status.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/nccl/nccl_machine.h"
#include "collectives/world/launch.h"
#include "offload/cuda/cuda_calls.h"
#include "tools/examples/gpt/ranks/rank_group.h"

namespace castor::gpt {

struct NcclRanksOptions {
  Launch launch;
  // Of this run alone, and seen by all ranks; empty: by MPI or the environment.
  std::string id_file;
  NcclOptions::Reduce reduce = NcclOptions::Reduce::kExact;
  int64_t timeout_ns = 120'000'000'000;  // of a rank that holds the others up
};

// InvalidArgument where there is no way for the ranks to find each other.
// `beside`: the same processes as MPI connects them; null where it does not.
// Blocks until all ranks have come, or one cannot: Unavailable.
Result<std::unique_ptr<RankGroup>> JoinNcclRanks(
    const NcclRanksOptions& options, const NcclMachine& machine,
    std::unique_ptr<RankGroup> beside);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RANKS_NCCL_RANKS_H_
