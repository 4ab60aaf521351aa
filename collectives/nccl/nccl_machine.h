// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_NCCL_MACHINE_H_
#define CASTOR_COLLECTIVES_NCCL_NCCL_MACHINE_H_

// CUDA as this build has it, and NCCL as this process finds it. Both stay until
// the process ends. Thread-safe.

#include "chunk/base/status.h"
#include "collectives/nccl/nccl_calls.h"
#include "offload/cuda/cuda_calls.h"

namespace castor {

struct NcclMachine {
  CudaCalls* cuda = nullptr;
  NcclCalls* nccl = nullptr;
};

// Unavailable, with what is missing and what to do.
Result<CudaCalls*> FindCuda();
Result<NcclMachine> FindNcclMachine();

// For tests: what the two find from now on; null for what there is.
void ReplaceNcclMachine(const NcclMachine& machine);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_NCCL_NCCL_MACHINE_H_
