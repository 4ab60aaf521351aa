// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_HOST_CPU_QUOTA_H_
#define CASTOR_OFFLOAD_HOST_CPU_QUOTA_H_

// How much processor time the cgroups of this process may use: the least of all
// quotas above it. A container with `--cpus 4` sees all cores of its machine,
// and a thread on each of them would be stopped most of the time. Part of what
// the machine leaves (available_memory.h).

#include <optional>

#include "offload/host/cgroup_folders.h"

namespace castor::internal {

// In processors; nothing where there is no limit.
std::optional<double> ReadCpuQuota(const SystemPaths& paths = {});

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_HOST_CPU_QUOTA_H_
