// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RANKS_RANK_GROUP_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RANKS_RANK_GROUP_H_

// The ranks of a run that are processes, as one of them sees them. All ranks
// make the same calls in the same order. Owner thread only; Abort may come from
// any thread.

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/world/launch.h"
#include "offload/device.h"
#include "offload/lane.h"

namespace castor::gpt {

// What ranks tell each other besides what their engines do, over a communicator
// that does nothing else: what the engine's counts is the engine's alone.

// all[r * size ...] = the `size` bytes that rank r brings. Blocks until every
// rank has come; fails on all where one aborts.
Status ExchangeBytes(Communicator& ranks, const void* mine, void* all,
                     Bytes size);

// What every rank brings, by rank. The ranks run one build.
template <typename T>
Result<std::vector<T>> Exchange(Communicator& ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(ranks.world()));
  CASTOR_RETURN_IF_ERROR(
      ExchangeBytes(ranks, &mine, all.data(), Bytes(int64_t{sizeof(T)})));
  return all;
}

class RankGroup {
 public:
  virtual ~RankGroup() = default;

  int rank() const { return trainer().rank(); }
  int world() const { return trainer().world(); }
  // Among the processes of this machine.
  virtual int local_rank() const = 0;
  virtual int local_world() const = 0;
  // What this rank computes next to; null: host memory. It lives until Close.
  virtual Device* device() { return nullptr; }

  // For Exchange. Both live until Close.
  virtual Communicator& trainer() const = 0;
  // A world for an engine, whose communicator may take `buffer` for itself.
  // Blocks until every rank has called it. REQUIRES: called once.
  Result<Communicator*> MakeEngine(Bytes buffer);

  // The others' pending and later calls fail with `reason`, and those of the
  // engine's communicator.
  void Abort(const Status& reason);

  // Waits for the others, as long as there is hope. Nothing else may be called
  // after it.
  virtual Status Close() = 0;

 protected:
  virtual Result<std::unique_ptr<Communicator>> Make(Bytes buffer) = 0;

  std::unique_ptr<Communicator> engine_;
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

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RANKS_RANK_GROUP_H_
