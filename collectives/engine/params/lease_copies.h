// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_PARAMS_LEASE_COPIES_H_
#define CASTOR_COLLECTIVES_ENGINE_PARAMS_LEASE_COPIES_H_

// Copies of parameters that leases have in place of chunks, where
// ZeroOptions::poison is on. A lease that ends fills its copy with NaN, so a
// late read is NaN though the chunk stays where it is. Copies lie beside the
// device budget, one for each lease of a parameter at once, and stay to the
// end.
//
// Owner thread only. Lanes outlive the object.

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/slab.h"
#include "offload/shards/rank_pools.h"

namespace castor::internal {

class LeaseCopies {
 public:
  struct Copy {
    ParamId param;
    Slab slab;
    Event ready;  // filled with NaN
  };

  // `pools` make the copies' memory, and outlive it.
  explicit LeaseCopies(RankPools* pools);
  ~LeaseCopies();
  LeaseCopies(const LeaseCopies&) = delete;
  LeaseCopies& operator=(const LeaseCopies&) = delete;

  // A copy of the `size` bytes at `from`, made on `lane`, until TakeBack. That
  // of the lease which ended first, so that late reads stay NaN for longest.
  // The pools' error where memory lacks.
  Result<Copy*> Make(ParamId param, const std::byte* from, Bytes size,
                     Lane& lane);
  // Behind the work on the lanes so far.
  void TakeBack(Copy* copy, std::span<Lane* const> lanes);

 private:
  RankPools* pools_;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<std::deque<Copy*>> free_;  // by ParamId
  std::unique_ptr<Lane> lane_;           // fills; stops before copies go
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_PARAMS_LEASE_COPIES_H_
