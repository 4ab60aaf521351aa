// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_TCP_ID_EXCHANGE_H_
#define CASTOR_COLLECTIVES_NCCL_TCP_ID_EXCHANGE_H_

// Part of the exchange of ids (id_exchange.h).
//
// An IdExchange by a host and a port that every rank knows beforehand, as the
// environments of torchrun and Slurm tell them (Launch::meeting_host): rank 0
// listens there, and tells whoever knows the run's word.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/nccl/control/control_link.h"
#include "collectives/nccl/id_exchange.h"

namespace castor {

struct TcpIdExchangeOptions {
  std::string host;  // of rank 0, as the others call it
  int port = 0;      // free there
  int world = 1;
  // The same on all ranks of a run, and on no other's.
  std::string run;
  int64_t timeout_ns = 120'000'000'000;
};

// Ranks keep their connections for later calls. Owner thread only; one object
// per rank.
class TcpIdExchange final : public IdExchange {
 public:
  explicit TcpIdExchange(TcpIdExchangeOptions options);

  Status Broadcast(int rank, std::span<std::byte> data) override;

 private:
  Status Meet(int rank, int64_t deadline_ns);

  const TcpIdExchangeOptions options_;
  // Of rank 0, to each rank, its own empty; of another, to rank 0.
  std::vector<internal::ControlLink> links_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_NCCL_TCP_ID_EXCHANGE_H_
