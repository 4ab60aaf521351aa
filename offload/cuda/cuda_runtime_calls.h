// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_CUDA_CUDA_RUNTIME_CALLS_H_
#define CASTOR_OFFLOAD_CUDA_CUDA_RUNTIME_CALLS_H_

// The call table of the CUDA runtime that is linked in. Thread-safe.

#include "offload/cuda/cuda_calls.h"

namespace castor {

// Lives as long as the process. Null in a build without CUDA (--config=cuda
// where the toolkit is found makes one with it). Whether there is a driver and
// a device is for its calls to say.
CudaCalls* CudaRuntimeCalls();

}  // namespace castor

#endif  // CASTOR_OFFLOAD_CUDA_CUDA_RUNTIME_CALLS_H_
