// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_CONTROL_ORDER_KEEPER_H_
#define CASTOR_COLLECTIVES_NCCL_CONTROL_ORDER_KEEPER_H_

// Part of the control plane (control_plane.h).
//
// What rank 0 knows of all ranks: who has come to which operation, and whether
// they mean the same. It lets an operation go once every rank has come, so all
// ranks start operations in one order, whatever the order in which their lanes
// get there; and it finds the first reason for which the world ends, so all
// ranks hear the same one. Sums and broadcasts of host data are done here too,
// by the in-process backend's own arithmetic, with its bits.
//
// It does no I/O and looks at no clock, so tests drive it. Thread-compatible.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/nccl/control/control_message.h"

namespace castor::internal {

class OrderKeeper {
 public:
  // An operation that not all ranks have come to within `timeout_ns` of the
  // first ends the world; one with a negative position, which is of the start,
  // within `start_timeout_ns`. 0: never.
  OrderKeeper(int world, int64_t timeout_ns, int64_t start_timeout_ns);

  // `rank` said `message` at `now_ns`: kReady, kEnd, kQuiet or kLeave.
  void Take(int rank, ControlMessage message, int64_t now_ns);
  // Nothing more will come from `rank`; `why` is what the system says.
  void Lost(int rank, std::string_view why);
  void CheckTimeout(int64_t now_ns);

  // What all ranks are to be told, in order, since the last time.
  std::vector<ControlMessage> TakeVerdicts();
  bool has_verdicts() const { return !verdicts_.empty(); }

  const Status& ended() const { return ended_; }

 private:
  // One position, from the first rank that came.
  struct Meeting {
    int first_rank = 0;
    int64_t first_ns = 0;
    int arrived = 0;
    std::vector<bool> here;                // by rank
    std::vector<ControlMessage> messages;  // by rank, as far as here
  };

  void Arrive(int rank, ControlMessage message, int64_t now_ns);
  void End(Status reason);
  // Tells all once nobody's device touches a buffer any more.
  void CheckQuiet();
  // What came of a rank that will not come to `position` any more.
  void CheckLeft(int rank);

  const int world_;
  const int64_t timeout_ns_;
  const int64_t start_timeout_ns_;
  std::map<int64_t, Meeting> waiting_;
  std::string last_;  // what all ranks came to last, for a rank that dies
  std::vector<int64_t> left_at_;  // by rank
  std::vector<bool> quiet_;       // by rank; gone ranks are
  bool told_quiet_ = false;
  Status ended_;
  std::vector<ControlMessage> verdicts_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_NCCL_CONTROL_ORDER_KEEPER_H_
