// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// In a build without CUDA.

#include "offload/cuda/cuda_runtime_calls.h"

namespace castor {

CudaCalls* CudaRuntimeCalls() { return nullptr; }

}  // namespace castor
