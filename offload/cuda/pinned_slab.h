// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_PINNED_SLAB_H_
#define CASTOR_OFFLOAD_CUDA_PINNED_SLAB_H_

// Host memory that a CUDA device copies at full speed. Part of the CUDA device
// (cuda_device.h).

#include <memory>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_core.h"
#include "offload/memory/slab.h"

namespace castor {

// A slab of MakeHostSlab, on `options.numa_node`, registered with the driver
// once and whole: the driver pins exactly these pages, where its own pinned
// allocations are rounded up and lie where it likes. `options.lock` is not
// looked at: the driver locks. Where it refuses, the memory is locked, bound
// and used as it is, which is said once with the remedy: copies are then staged
// by the driver, at about half the speed, and block their caller. Blocks while
// the device works. `facts`, when given, tells what was had. Unavailable as
// MakeHostSlab is. REQUIRES: size >= 0.
Result<Slab> MakePinnedSlab(std::shared_ptr<CudaCore> core, Bytes size,
                            const HostSlabOptions& options,
                            HostSlabFacts* facts = nullptr);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_PINNED_SLAB_H_
