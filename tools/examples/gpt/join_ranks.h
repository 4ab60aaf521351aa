// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_JOIN_RANKS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_JOIN_RANKS_H_

// How a process that was started as one of several meets the others. There are
// two of it, and a program links one: join_ranks_mpi.cc meets them by MPI;
// join_ranks_exec.cc, for a program that is to be built and started without
// MPI, becomes the program of the same name and "_mpi" beside it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/launch.h"
#include "tools/examples/gpt/rank_group.h"

namespace castor::gpt {

// `args`: the program's, without its name. `timeout_ns`: how long a rank may
// hold the others up. Unavailable where there is no way to them.
Result<std::unique_ptr<RankGroup>> JoinRanks(
    const Launch& launch, const std::vector<std::string>& args,
    int64_t timeout_ns);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_JOIN_RANKS_H_
