// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_PLANE_H_
#define CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_PLANE_H_

// What one rank says to the world and hears of it: on rank 0, the keeper of the
// order (order_keeper.h) and a link to every other rank; elsewhere, a link to
// rank 0. Where rank 0 has gone, died or fallen silent, the others end by
// themselves, and say so. Calls do not block, but for Close.
// Thread-compatible.

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "collectives/nccl/control/control_link.h"
#include "collectives/nccl/control/control_message.h"
#include "collectives/nccl/control/order_keeper.h"

namespace castor::internal {

struct ControlTimeouts {
  // As OrderKeeper. 0: never.
  int64_t operation_ns = 0;
  int64_t start_ns = 0;
  // Ranks that have waited a quarter longer and so much more take rank 0 for
  // hung. So long, too, their own reason to end waits for what rank 0 says
  // ended the world first.
  int64_t slack_ns = 2'000'000'000;
};

class ControlPlane {
 public:
  // `links` by rank on rank 0, the link to rank 0 elsewhere.
  ControlPlane(int rank, int world, std::vector<ControlLink> links,
               ControlTimeouts timeouts);

  // kReady, kEnd, kQuiet or kLeave of this rank.
  void Say(ControlMessage message);
  // Serves the links and the timeouts. Appends kGo, kEnd and kQuiet as they
  // come for this rank, in the world's order. After the first kEnd no kGo and
  // no other kEnd comes.
  void Serve(std::vector<ControlMessage>* heard);
  // Whether something is to be heard already, of what this rank itself said.
  bool has_news() const {
    return !to_hear_.empty() || (keeper_ != nullptr && keeper_->has_verdicts());
  }
  // What to wait for before serving again.
  void AppendTo(std::vector<pollfd>* entries) const;
  // Delivers what was said, until `deadline_ns`. Blocks. The last call.
  void Close(int64_t deadline_ns);

 private:
  struct Pending {
    CollectiveCall call;  // its purpose is a literal of this process
    int64_t since_ns = 0;
  };

  void ServeAsRankZero(std::vector<ControlMessage>* heard);
  void ServeAsOther(std::vector<ControlMessage>* heard);
  void RankZeroIsGone(const Status& how);
  // Whether the link to rank 0 may say nothing for any longer.
  void CheckSilence();
  void EndHere(Status reason);
  // Hands out what is to be heard, without what comes after an end.
  void HandOut(std::vector<ControlMessage>* heard);

  const int rank_;
  const ControlTimeouts timeouts_;
  const SteadyClock clock_;
  std::vector<std::optional<ControlLink>> links_;
  std::unique_ptr<OrderKeeper> keeper_;  // of rank 0
  std::vector<ControlMessage> to_hear_;
  bool ended_ = false;

  // Of the others.
  std::map<int64_t, Pending> pending_;  // said kReady, not heard kGo
  std::optional<int64_t> zero_left_at_;
  std::optional<ControlMessage> own_end_;  // said, and not heard yet
  int64_t own_end_ns_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_NCCL_CONTROL_CONTROL_PLANE_H_
