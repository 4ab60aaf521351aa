// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_IN_PROCESS_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_IN_PROCESS_COMMUNICATOR_H_

// Ranks that are threads (or engines) of one process. Peers read each other's
// buffers directly, so there are no buffers and no copies besides the result,
// and a rank that waits occupies no thread: any world runs on any pool. The
// last rank to come to an operation hands the executor one part per rank, or
// does all of it at once where that is little. A world of one serves
// single-process users.
//
// One thread of its own watches the timeout. Destroy communicators on their
// owner threads, not from what their operations call.

#include <memory>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "offload/lanes/executor.h"

namespace castor {

struct InProcessOptions {
  int world = 1;
  // Moves the data; must outlive the communicators.
  Executor* executor = nullptr;
  // An operation that not all ranks have reached within this time ends the
  // world, naming the missing ranks; 0 waits for ever.
  int64_t timeout_ns = 120'000'000'000;
  // Must outlive the communicators; null: the machine's clock.
  const Clock* clock = nullptr;
};

// One communicator per rank, by rank. REQUIRES: world >= 1, an executor.
std::vector<std::unique_ptr<Communicator>> MakeInProcessWorld(
    const InProcessOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_IN_PROCESS_COMMUNICATOR_H_
