// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_RANK_POOLS_H_
#define CASTOR_OFFLOAD_RANK_POOLS_H_

// All the memory one rank may use: a slab and a pool on the device and in host
// memory, a store and a pool on NVMe, made at once and never grown. Owns all of
// it. Owner thread only.

#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/nvme/io_queue.h"
#include "offload/nvme/nvme_option.h"
#include "offload/nvme/nvme_store.h"
#include "offload/slab.h"
#include "offload/tier_pool.h"

namespace castor {

struct RankPoolsOptions {
  Bytes device_budget;
  Bytes host_budget;
  Bytes nvme_budget;
  std::vector<SlotClass> device_classes;
  std::vector<SlotClass> host_classes;
  std::vector<SlotClass> nvme_classes;  // no slots: no store is made
  std::vector<NvmeOption> nvme_drives;
  Log* log = nullptr;  // may be null, else must outlive the pools
  // Tests put a queue that misbehaves here, for the first drive.
  std::unique_ptr<IoQueue> nvme_queue_for_test = nullptr;
};

class RankPools {
 public:
  // Leaves nothing behind when any part of it cannot be had, and makes nothing
  // when a budget does not hold its classes (Infeasible).
  static Result<std::unique_ptr<RankPools>> Create(RankPoolsOptions options);

  TierPool& pool(Tier tier) { return pools_[TierIndex(tier)]; }
  const TierPool& pool(Tier tier) const { return pools_[TierIndex(tier)]; }
  // Slabs and files made so far: fixed once made, which is the point.
  int64_t allocations() const { return allocations_; }
  NvmeStore* nvme() { return nvme_.get(); }  // null where there is none

 private:
  RankPools(Slab device, Slab host, std::unique_ptr<NvmeStore> nvme,
            std::vector<TierPool> pools);

  int64_t allocations_ = 0;
  Slab device_;
  Slab host_;
  std::unique_ptr<NvmeStore> nvme_;
  std::vector<TierPool> pools_;  // by TierIndex
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_RANK_POOLS_H_
