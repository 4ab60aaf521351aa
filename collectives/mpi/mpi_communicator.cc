// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/mpi_communicator.h"

#include <memory>

#include "collectives/callbacks/callback_communicator.h"
#include "collectives/mpi/mpi_calls.h"

namespace castor {

Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(
    MpiSession& session, const MpiOptions& options) {
  const CallbackOptions own = {.timeout_ns = options.timeout_ns,
                               .exchange_buffer = options.exchange_buffer,
                               .clock = options.clock};
  CASTOR_RETURN_IF_ERROR(CheckCallbackOptions(own));
  CASTOR_ASSIGN_OR_RETURN(const std::shared_ptr<internal::MpiCalls> calls,
                          session.Connect());
  return MakeCallbackCommunicator(session.rank(), session.world(),
                                  internal::MpiCalls::Of(calls), own);
}

}  // namespace castor
