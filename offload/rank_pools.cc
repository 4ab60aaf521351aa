// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/rank_pools.h"

#include <utility>

#include "chunk/base/check.h"

namespace castor {

Result<std::unique_ptr<RankPools>> RankPools::Create(RankPoolsOptions options) {
  // Sizes are checked against budgets before anything is made: pools without
  // memory tell what they would take.
  CASTOR_ASSIGN_OR_RETURN(const TierPool device_shape,
                          TierPool::Create(Tier::kDevice, options.device_budget,
                                           options.device_classes, nullptr));
  CASTOR_ASSIGN_OR_RETURN(const TierPool host_shape,
                          TierPool::Create(Tier::kHost, options.host_budget,
                                           options.host_classes, nullptr));
  CASTOR_ASSIGN_OR_RETURN(TierPool nvme_pool,
                          TierPool::Create(Tier::kNvme, options.nvme_budget,
                                           options.nvme_classes, nullptr));
  const Bytes device_size = device_shape.stats().reserved;
  const Bytes host_size = host_shape.stats().reserved;
  const Bytes nvme_size = nvme_pool.stats().reserved;

  // The file first: a directory that cannot be used is known at once, memory
  // is touched page by page.
  std::unique_ptr<NvmeStore> nvme;
  if (nvme_size > Bytes(0)) {
    NvmeStoreOptions nvme_options;
    CASTOR_ASSIGN_OR_RETURN(
        nvme_options.drives,
        NvmeStore::DrivesFor(nvme_size, options.nvme_drives));
    nvme_options.log = options.log;
    if (options.nvme_queue_for_test != nullptr) {
      CASTOR_CHECK_EQ(nvme_options.drives.size(), 1u);
      nvme_options.queue_for_test = [&options](size_t) {
        return std::move(options.nvme_queue_for_test);
      };
    }
    CASTOR_ASSIGN_OR_RETURN(nvme, NvmeStore::Create(std::move(nvme_options)));
  }
  Slab device;
  if (device_size > Bytes(0)) {
    CASTOR_ASSIGN_OR_RETURN(device, MakeSimulatedDeviceSlab(device_size));
  }
  Slab host;
  if (host_size > Bytes(0)) {
    HostSlabOptions host_options;
    host_options.log = options.log;
    CASTOR_ASSIGN_OR_RETURN(host, MakeHostSlab(host_size, host_options));
    if (nvme != nullptr) {
      nvme->RegisterMemory(
          {host.data(), static_cast<size_t>(host.size().count())});
    }
  }

  std::vector<TierPool> pools;
  CASTOR_ASSIGN_OR_RETURN(
      TierPool device_pool,
      TierPool::Create(Tier::kDevice, options.device_budget,
                       options.device_classes, device.data()));
  CASTOR_ASSIGN_OR_RETURN(TierPool host_pool,
                          TierPool::Create(Tier::kHost, options.host_budget,
                                           options.host_classes, host.data()));
  pools.push_back(std::move(device_pool));
  pools.push_back(std::move(host_pool));
  pools.push_back(std::move(nvme_pool));
  return std::unique_ptr<RankPools>(new RankPools(
      std::move(device), std::move(host), std::move(nvme), std::move(pools)));
}

RankPools::RankPools(Slab device, Slab host, std::unique_ptr<NvmeStore> nvme,
                     std::vector<TierPool> pools)
    : allocations_((device.size() > Bytes(0)) + (host.size() > Bytes(0)) +
                   (nvme != nullptr)),
      device_(std::move(device)),
      host_(std::move(host)),
      nvme_(std::move(nvme)),
      pools_(std::move(pools)) {}

}  // namespace castor
